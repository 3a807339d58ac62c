"""Compares `mlserver infer` with the original's, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/batch.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

Parts, of which `--only` takes some:

- `requests`: one-row requests from a file to the quickstart's XGBoost model, our `infer` against our server and MLServer
  1.7.1's against its own, both with their defaults. The peer gets a part of the file (`--peer-rows`): it is slow, and its rate
  does not depend on how many there are. Every row must be answered, and the first ones alike.
- `client`: our `infer` alone with 100 rows in a request, against `echo.rs`, which parses nothing: rows for each second of
  processor time that the client takes.
- `memory`: an input of `--gigabytes` through a pipe; the most memory that the client ever had.
- `embedded`: `--rows` rows of CSV through an XGBoost model in the process, compared with `mlflow models predict` on the same file and
  model. Needs `--mlflow`, the Python of an environment with mlflow, pandas, scikit-learn and xgboost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run import MODELS, Failed, Program, build_example, free_ports, install_peer, machine, running

MODEL = "iris-xgboost"
IRISES = ([5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3], [5.9, 3.0, 4.2, 1.5])
CLASSES = (0, 2, 1)
COLUMNS = 20

TRAIN = '''import sys
import mlflow.xgboost
import numpy
import pandas
import xgboost

folder, rows, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = numpy.random.default_rng(0)
names = [f"c{index}" for index in range(columns)]
x = pandas.DataFrame(random.normal(size=(20000, columns)).round(4), columns=names)
y = (x["c0"] + x["c1"] * x["c2"] > 0).astype(int)
model = xgboost.XGBRegressor(n_estimators=100, max_depth=6, n_jobs=2).fit(x, y)
model.save_model(f"{folder}/model.json")
mlflow.xgboost.save_model(model, f"{folder}/mlflow", model_format="json")
pandas.DataFrame(random.normal(size=(rows, columns)).round(4), columns=names).to_csv(f"{folder}/rows.csv", index=False)
'''


def request(row: int) -> str:
    tensor = {"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": IRISES[row % 3]}
    return json.dumps({"id": str(row), "inputs": [tensor]}, separators=(",", ":")) + "\n"


class Ran:
    """A command that has ended well: seconds of wall and of processor time, and its most resident memory in bytes."""

    def __init__(self, command: list[str], stdin: object = subprocess.DEVNULL, good: tuple[int, ...] = (0,)) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MLSERVER_")}
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        assert process.stdout is not None
        self.output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        self.wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        self.processor = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss * 1024
        if process.returncode not in good:
            raise Failed(f"{command[0]} ended with {process.returncode}:\n{self.output[-2000:]}")


def infer(program: Path, port: int, model: str, source: str, target: Path, *flags: str, stdin: object = subprocess.DEVNULL) -> Ran:
    address = f"127.0.0.1:{port}"
    return Ran([str(program), "infer", "-u", address, "-m", model, "-i", source, "-o", str(target), *flags], stdin)


def check(answers: Path, rows: int) -> None:
    """Every row has its class."""
    seen = 0
    with answers.open() as lines:
        for line in lines:
            answer = json.loads(line)
            index = answer["parameters"]["batch_index"]
            if "error" in answer or answer["outputs"][0]["data"][0] != CLASSES[index % 3]:
                raise Failed(f"row {index} was answered {line[:300]}")
            seen += 1
    if seen != rows:
        raise Failed(f"{rows} rows have {seen} answers")


def requests(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    models = folder / "models"
    shutil.copytree(MODELS / MODEL, models / MODEL)
    everything, part = folder / "requests.jsonl", folder / "part.jsonl"
    everything.write_text("".join(map(request, range(args.requests))))
    part.write_text("".join(map(request, range(args.peer_rows))))
    peer = install_peer(args.env)
    results: dict[str, object] = {}
    with running(Program("ours", lambda _: [str(args.ours), "start", str(models)]), models) as server:
        for name, flags in (("ours", ()), ("ours, --batch-size 100", ("-s", "100"))):
            ran = infer(args.ours, server.port, MODEL, str(everything), folder / "ours.jsonl", "--quiet", *flags)
            check(folder / "ours.jsonl", args.requests)
            results[name] = {"rows": args.requests, "seconds": ran.wall, "rows/s": args.requests / ran.wall}
    with running(Program("peer", lambda _: [str(peer), "start", str(models)]), models) as server:
        ran = infer(peer, server.port, MODEL, str(part), folder / "peer.jsonl")
        check(folder / "peer.jsonl", args.peer_rows)
        results["peer"] = {"rows": args.peer_rows, "seconds": ran.wall, "rows/s": args.peer_rows / ran.wall}
    results["ours / peer"] = results["ours"]["rows/s"] / results["peer"]["rows/s"]
    return results


class Echo:
    """`echo.rs`, answering a request of `rows` rows."""

    def __init__(self, args: argparse.Namespace, folder: Path, rows: int) -> None:
        output = {"name": "predict", "shape": [rows, 1], "datatype": "INT64", "data": [1] * rows}
        answer = folder / "answer.json"
        answer.write_text(json.dumps({"model_name": "m", "id": "x", "parameters": {}, "outputs": [output]}))
        (self.port,) = free_ports(1)
        self.command = [str(args.echo or build_example("echo")), f"127.0.0.1:{self.port}", str(answer), "content-type:application/json"]

    def __enter__(self) -> int:
        self.process = subprocess.Popen(self.command)
        time.sleep(0.5)
        return self.port

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def client(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    source = folder / "requests.jsonl"
    rows = 1_000_000
    with source.open("w") as lines:
        for start in range(0, rows, 1000):
            lines.write("".join(map(request, range(start, start + 1000))))
    with Echo(args, folder, 100) as port:
        ran = infer(args.ours, port, "m", str(source), folder / "answers.jsonl", "--quiet", "-s", "100")
    return {"rows": rows, "wall": ran.wall, "processor": ran.processor, "rows/s of one core": rows / ran.processor}


def memory(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    data = ",".join(f"{value / 1000:.3f}" for value in range(1000, 5000))
    line = '{"inputs":[{"name":"x","shape":[1,4000],"datatype":"FP32","data":[' + data + "]}]}\n"
    block = (line * 50).encode()
    count = int(args.gigabytes * 1e9 / len(block))
    with Echo(args, folder, 1) as port:
        (folder / "block").write_bytes(block)
        program = f"import sys\nblock = open({str(folder / 'block')!r}, 'rb').read()\n"
        program += f"for _ in range({count}): sys.stdout.buffer.write(block)\n"
        feeder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        ran = infer(args.ours, port, "m", "-", Path("/dev/null"), "--quiet", stdin=feeder.stdout)
        assert feeder.stdout is not None
        feeder.stdout.close()
        if feeder.wait() != 0:
            raise Failed("not all of the input was read")
    return {"bytes": count * len(block), "seconds": ran.wall, "most resident MiB": ran.memory / 2**20}


def embedded(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    if args.mlflow is None:
        raise Failed("`embedded` needs --mlflow, the Python of an environment with mlflow")
    Ran([str(args.mlflow), "-c", TRAIN, str(folder), str(args.rows), str(COLUMNS)])
    served = folder / "served"
    served.mkdir()
    shutil.copy(folder / "model.json", served / "model.json")
    settings = {"name": "m", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./model.json"}}
    (served / "model-settings.json").write_text(json.dumps(settings))
    rows = str(folder / "rows.csv")
    results: dict[str, object] = {}
    for target in ("answers.jsonl", "answers.csv"):
        ran = Ran([str(args.ours), "infer", "--embedded", str(served), "-i", rows, "-o", str(folder / target), "--quiet"])
        results[f"ours, {target}"] = {"seconds": ran.wall, "rows/s": args.rows / ran.wall}
    command = [str(args.mlflow), "-m", "mlflow", "models", "predict", "-m", str(folder / "mlflow"), "-i", rows, "-o"]
    peer = Ran([*command, str(folder / "mlflow.json"), "-t", "csv", "--env-manager", "local"])
    results["mlflow models predict"] = {"seconds": peer.wall, "rows/s": args.rows / peer.wall}
    wanted = json.loads((folder / "mlflow.json").read_text())["predictions"]
    worst = 0.0
    with (folder / "answers.jsonl").open() as lines:
        for index, line in enumerate(lines):
            found = json.loads(line)["outputs"][0]["data"][0]
            worst = max(worst, abs(found - wanted[index]) / max(abs(wanted[index]), 1e-3))
    if index + 1 != len(wanted) or worst > 1e-5:
        raise Failed(f"{index + 1} answers, expected the {len(wanted)} of mlflow, off by up to {worst}")
    for target in ("answers.jsonl", "answers.csv"):
        results[f"ours, {target} / mlflow"] = results[f"ours, {target}"]["rows/s"] / results["mlflow models predict"]["rows/s"]
    return results


PARTS = {"requests": requests, "client": client, "memory": memory, "embedded": embedded}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures `mlserver infer`, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, required=True, help="folder for the peer's virtual environment")
    parser.add_argument("--echo", type=Path, help="the bare hyper server (default: builds it)")
    parser.add_argument("--mlflow", type=Path, help="Python of an environment with mlflow and xgboost")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to run (default: all)")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--peer-rows", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    args.ours = args.ours.resolve()
    results: dict[str, object] = {"machine": machine(), "left out": [part for part in PARTS if args.only and part not in args.only]}
    for name in args.only or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = PARTS[name](args, Path(folder))
        print(json.dumps({name: results[name]}, indent=2), flush=True)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"failed: {failure}")
