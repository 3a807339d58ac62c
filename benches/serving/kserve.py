"""Compares the V1 protocol with KServe 0.21's own server, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/kserve.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

Three kinds of work: one row for a scikit-learn classifier, which mlserver evaluates natively; one row for the same `kserve.Model` in
Python on both servers, with one worker each; and 1000 x 256 numbers, for mlserver's identity model and a `kserve.Model` that returns
its instances. The predictions of both are compared before anything is timed. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from run import Failed, Program, machine, running, wrk

PACKAGES = ["kserve==0.21.0", "scikit-learn==1.9.1"]

MODELS = '''import sys

import joblib
from kserve import Model, ModelServer
from kserve.utils.utils import get_predict_input, get_predict_response


class Iris(Model):
    def load(self):
        self.model = joblib.load("@PATH@")
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None):
        return get_predict_response(payload, self.model.predict(get_predict_input(payload)), self.name)


class Echo(Model):
    def load(self):
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None):
        return {"predictions": payload["instances"]}


if __name__ == "__main__":
    models = [Iris("iris"), Echo("echo"), Echo("identity")]
    for model in models:
        model.load()
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1, enable_grpc=False).start(models)
'''

TRAIN = """import sys
import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
joblib.dump(LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True)), sys.argv[1])
"""

#: The work: what is sent, to which model of each server, over how many connections, and how many times as fast it should be.
CASES = {
    "row": ("one row, scikit-learn, natively", "iris", 16, 50.0),
    "echo": ("one row, `kserve.Model` echo in Python, one worker", "echo", 16, 8.0),
    "large": ("1000 x 256 numbers, native identity", "identity", 4, 10.0),
}


def environment(folder: Path) -> Path:
    """The interpreter with KServe; makes its environment if it is not there or was made from other pins."""
    home = folder / "kserve"
    made = home / "made-from.txt"
    wanted = "\n".join(PACKAGES)
    if not (made.exists() and made.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        made.write_text(wanted)
    return home / "bin" / "python"


def post(port: int, model: str, body: bytes) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", f"/v1/models/{model}:predict", body, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{model} was answered {response.status}: {text[:300]!r}")
    return json.loads(text)


def bodies() -> dict[str, bytes]:
    seed = random.Random(1)
    row = [[5.1, 3.5, 1.4, 0.2]]
    large = [[seed.uniform(-1, 1) for _ in range(256)] for _ in range(1000)]
    return {name: json.dumps({"instances": large if name == "large" else row}).encode() for name in CASES}


def write(folder: Path, python: Path) -> tuple[Path, Path]:
    """Writes the models of both servers, and returns the folder of ours and KServe's script."""
    model = folder / "iris.joblib"
    subprocess.run([str(python), "-c", TRAIN, str(model)], check=True)
    source = MODELS.replace("@PATH@", str(model))
    (folder / "models.py").write_text(source)
    for name, settings in {
        "iris": {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": str(model)}},
        "echo": {"implementation": "bench_models.Echo"},
        "identity": {"implementation": "mlserver_identity.IdentityModel"},
    }.items():
        home = folder / "ours" / name
        home.mkdir(parents=True)
        (home / "bench_models.py").write_text(source)
        (home / "model-settings.json").write_text(json.dumps({"name": name, **settings}))
    return folder / "ours", folder / "models.py"


def measure(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> None:
    found: dict[tuple[str, str], list[dict[str, float]]] = {(case, name): [] for case in args.only for name in programs}
    sent = bodies()
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(program, folder)) for name, program in programs.items()}
        scripts = {}
        for case in args.only:
            model = CASES[case][1]
            ours, theirs = (post(servers[name].port, model, sent[case]) for name in programs)
            if ours != theirs:
                raise Failed(f"{case}: the predictions differ: {str(ours)[:200]} and {str(theirs)[:200]}")
            body, lua = folder / f"{case}.body", folder / f"{case}.lua"
            body.write_bytes(sent[case])
            lua.write_text(
                f"wrk.method = 'POST'\nwrk.body = io.open('{body}', 'rb'):read('*a')\nwrk.headers['content-type'] = 'application/json'\n"
            )
            scripts[case] = lua

        def load(case: str, name: str, seconds: float) -> dict[str, float]:
            _, model, connections, _ = CASES[case]
            return wrk(servers[name].port, scripts[case], connections, 1, seconds, f"/v1/models/{model}:predict")

        for case, name in found:
            load(case, name, 1)
        order = list(found)
        for turn in range(args.rounds):
            for place in range(len(order)):
                case, name = order[(turn + place) % len(order)]
                found[case, name].append(load(case, name, args.seconds))
                print(f"round {turn + 1}: {case} {name} {found[case, name][-1]['rate']:.1f}/s", file=sys.stderr, flush=True)
    print("\n| work | server | requests/s | min | max | p50 ms | ratio (target) |\n|---|---|---:|---:|---:|---:|---|")
    for case in args.only:
        title, _, _, wanted = CASES[case]
        rates = {name: statistics.median(one["rate"] for one in found[case, name]) for name in programs}
        ratio = rates["ours"] / rates["kserve"]
        for name, label in (("ours", "mlserver"), ("kserve", "KServe 0.21.0")):
            every = [one["rate"] for one in found[case, name]]
            middle = statistics.median(one["50"] for one in found[case, name])
            result = f"{ratio:.1f} times ({wanted:g}{', **missed**' * (ratio < wanted)})" if name == "ours" else ""
            print(
                f"| {title if name == 'ours' else ''} | {label} | {rates[name]:.1f} | {min(every):.1f} | {max(every):.1f} "
                f"| {middle:.3f} | {result} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the V1 protocol with KServe's own server, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, required=True, help="folder for KServe's virtual environment")
    parser.add_argument("--python", type=Path, help="an interpreter with KServe, instead of one in --env")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="work to measure")
    args = parser.parse_args()
    try:
        if shutil.which("wrk") is None:
            raise Failed("`wrk` is not installed (apt-get install wrk)")
        python = (args.python or environment(args.env.resolve())).absolute()
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            ours = folder / "ours-binary"
            # copied, because the build folder may change during the run
            shutil.copy2(args.ours.resolve(), ours)
            models, script = write(folder, python)
            variables = {"MLSERVER_DEBUG": "false", "MLSERVER_PARALLEL_WORKERS": "1"}
            programs = {
                "ours": Program(
                    "ours",
                    lambda port: [str(ours), "start", str(models)],
                    environment={**variables, "MLSERVER_PYTHON_EXECUTABLE": str(python)},
                ),
                "kserve": Program("kserve", lambda port: [str(python), str(script), str(port), str(port + 1)]),
            }
            print(f"{machine()}; {args.rounds} rounds of {args.seconds:g} s")
            measure(programs, folder, args)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
