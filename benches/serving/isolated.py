"""Measures what a native worker adds to a request, and compares a model of ONNX with the same trees as XGBoost.

    apt-get install wrk
    cargo build --profile dist --features full
    python3.11 benches/serving/isolated.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

One server has each model twice: in the server itself, and with `parameters.isolate` in a native worker. The answers of both
are compared, then `wrk` asks all in rotating order: over one connection, where the time of a request is what the worker adds,
and over 16 connections, where the cores are shared.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import Failed, Program, Server, machine, running, wrk

PINS = ["xgboost-cpu==3.2.0", "scikit-learn==1.7.2", "numpy==2.4.6", "onnx==1.19.1", "onnxmltools==1.16.0"]
PINS += ["onnxconverter-common==1.16.0"]
COLUMNS, TOKENS = 20, 16
#: Writes the models in the environment of the libraries: 100 trees in the formats of XGBoost and of ONNX, and a sum of tokens.
TRAIN = f"""
import sys
import numpy as np, onnx, xgboost
from onnx import TensorProto, helper
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

random = np.random.default_rng(1)
rows = random.normal(size=(5000, {COLUMNS})).astype("f4")
trees = xgboost.XGBRegressor(n_estimators=100, max_depth=6, n_jobs=1).fit(rows, rows[:, 0] + rows[:, 1] * rows[:, 2])
trees.save_model(sys.argv[1] + "/trees.json")
onnx.save(convert_xgboost(trees, initial_types=[("x", FloatTensorType([None, {COLUMNS}]))]), sys.argv[1] + "/trees.onnx")
tokens = helper.make_tensor_value_info("x", TensorProto.INT64, [None, {TOKENS}])
answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
nodes = [
    helper.make_node("Cast", ["x"], ["numbers"], to=TensorProto.FLOAT),
    helper.make_node("ReduceSum", ["numbers", "axes"], ["y"], keepdims=1),
]
axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
graph = helper.make_graph(nodes, "tokens", [tokens], [answer], [axes])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), sys.argv[1] + "/tokens.onnx")
"""
#: The models: the file, its class, and the datatype and number of the elements of a row.
MODELS = {
    "xgboost": ("trees.json", "mlserver_xgboost.XGBoostModel", "FP32", COLUMNS),
    "onnx": ("trees.onnx", "mlserver_onnx.OnnxModel", "FP32", COLUMNS),
    "tokens": ("tokens.onnx", "mlserver_onnx.OnnxModel", "INT64", TOKENS),
}
TITLES = {"xgboost": "XGBoost, 100 trees", "onnx": "the same trees in ONNX", "tokens": f"sum of {TOKENS} tokens in ONNX"}
ISOLATED = "-isolated"


def install(folder: Path) -> Path:
    """The Python of the libraries' environment; made if it is not there or was made from other pins."""
    home = folder / "isolated"
    made = home / "made-from.txt"
    if not (made.exists() and made.read_text() == "\n".join(PINS)):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PINS], check=True)
        made.write_text("\n".join(PINS))
    return home / "bin" / "python"


def write_models(folder: Path, python: Path) -> None:
    """Trains the models, and writes each twice into a repository."""
    subprocess.run([str(python), "-c", TRAIN, str(folder)], check=True)
    for name, (file, implementation, _, _) in MODELS.items():
        for suffix in ("", ISOLATED):
            home = folder / "models" / f"{name}{suffix}"
            home.mkdir(parents=True)
            shutil.copy(folder / file, home / file)
            parameters = {"uri": f"./{file}", "isolate": bool(suffix)}
            settings = {"name": home.name, "implementation": implementation, "parameters": parameters}
            (home / "model-settings.json").write_text(json.dumps(settings))


def body(name: str) -> bytes:
    _, _, datatype, count = MODELS[name]
    data = [place if datatype == "INT64" else place / 8 for place in range(count)]
    return json.dumps({"inputs": [{"name": "x", "shape": [1, count], "datatype": datatype, "data": data}]}).encode()


def path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def asked(server: Server, method: str, where: str, sent: bytes | None = None) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, where, sent, {"content-type": "application/json"})
        response = connection.getresponse()
        found = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{where} was answered {response.status}: {found[:300]!r}")
    values: dict[str, object] = json.loads(found)
    return values


def check(server: Server) -> None:
    """Fails unless all models are native, and answer alike in the server and in a worker."""
    for name in MODELS:
        answers = []
        for model in (name, name + ISOLATED):
            backend = asked(server, "GET", f"/v2/models/{model}")["parameters"]["backend"]  # type: ignore[index]
            if backend != "native":
                raise Failed(f"the backend of `{model}` is `{backend}`")
            answers.append(asked(server, "POST", path(model), body(name))["outputs"])
        if answers[0] != answers[1]:
            raise Failed(f"`{name}` answers {answers[0]} in the server and {answers[1]} in a worker")


def measure(server: Server, folder: Path, connections: int, args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Rounds of load, one model after the other, in an order that turns with each round."""
    names = [name + suffix for name in MODELS for suffix in ("", ISOLATED)]
    scripts = {}
    for name in names:
        scripts[name] = folder / f"{name}.lua"
        sent = body(name.removesuffix(ISOLATED)).decode()
        scripts[name].write_text(f"wrk.method = 'POST'\nwrk.body = '{sent}'\nwrk.headers['content-type'] = 'application/json'\n")
        wrk(server.port, scripts[name], connections, 1, 1, path(name))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(args.rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            found[name].append(wrk(server.port, scripts[name], connections, 1, args.seconds, path(name)))
            print(f"round {turn + 1}, {connections} connections: {name} {found[name][-1]['rate']:.0f}/s", file=sys.stderr)
    return found


def table(found: dict[str, list[dict[str, float]]], connections: int) -> None:
    def middle(name: str, key: str) -> float:
        return statistics.median(one[key] for one in found[name])

    print(f"\n### {connections} connection{'s' * (connections > 1)}\n")
    print("| model | requests/s | in a worker | ratio | p50 ms | in a worker | more |\n|---|---:|---:|---:|---:|---:|---:|")
    for name in MODELS:
        rates, times = ([middle(model, key) for model in (name, name + ISOLATED)] for key in ("rate", "50"))
        shown = f"{times[0]:.3f} | {times[1]:.3f} | {times[1] - times[0]:+.3f}"
        print(f"| {TITLES[name]} | {rates[0]:.0f} | {rates[1]:.0f} | {rates[1] / rates[0]:.2f} | {shown} |")
    print(f"\nONNX and XGBoost in the server: {middle('onnx', 'rate') / middle('xgboost', 'rate'):.2f} of the requests/s (target: 0.90)")
    if connections == 1:
        more = middle("tokens" + ISOLATED, "50") - middle("tokens", "50")
        print(f"What a worker adds to {TOKENS} tokens: {more:.3f} ms (target: at most 0.2 ms)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a native worker adds to a request.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, required=True, help="folder for the libraries' virtual environment")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    try:
        if shutil.which("wrk") is None:
            raise Failed("`wrk` is not installed (apt-get install wrk)")
        python = install(args.env.resolve())
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            write_models(folder, python)
            command = [str(args.ours.resolve()), "start", str(folder / "models")]
            program = Program("ours", lambda _: command, ready_path="/v2/health/ready")
            print(f"{machine()}; {args.rounds} rounds of {args.seconds:g} s")
            with running(program, folder) as server:
                check(server)
                for connections in (1, 16):
                    table(measure(server, folder, connections, args), connections)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
