"""Compares inference graphs with calls of their models one by one.

    apt-get install valgrind
    cargo build --profile dist --bin mlserver --example graph
    python3.11 -m venv target/graph && target/graph/bin/pip install "mlserver==1.7.1" "uvloop<0.22"
    python3.11 benches/serving/graph.py target/dist/mlserver target/graph/bin/mlserver

1. Instructions in user space for three native models in one process, as a graph and one by one (callgrind): twice with different numbers
   of requests, so that loading cancels out.
2. Requests/s of a graph of two echo models in Python, beside a client that calls both on the original, one after the other. Both servers
   have one worker, `debug` off, and the same client: `wrk` with one thread for each connection, so that a connection of the original asks
   the models in turns. Both requests of a pair have the same payload: an echo's answer has the tensors of its request, and wrk would
   need time of its own to rewrite it. The order of the servers changes every round.
3. Latency of a graph of four branches that each wait for 50 ms.

`--parts` selects some of them, and `--rounds` and `--seconds` shorten the second.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from run import Failed, Program, machine, running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "target" / "dist" / "examples" / "graph"

MODELS = '''
import asyncio
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Echo(MLModel):
    async def predict(self, payload):
        return self.answer(payload)

    def answer(self, payload):
        outputs = [
            ResponseOutput(name=each.name, shape=each.shape, datatype=each.datatype, data=each.data)
            for each in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)


class Waits(Echo):
    async def predict(self, payload):
        await asyncio.sleep(0.05)
        outputs = [
            ResponseOutput(name=self.name, shape=each.shape, datatype=each.datatype, data=each.data)
            for each in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
'''

BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}
).encode()


def instructions(mode: str, requests: int) -> int:
    counted = Path(tempfile.mkdtemp()) / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", str(EXAMPLE), mode, str(requests)]
    subprocess.run(command, check=True, capture_output=True)
    found = re.search(r"^(?:summary|totals): (\d+)", counted.read_text(), re.MULTILINE)
    if found is None:
        raise Failed("callgrind counted nothing")
    return int(found[1])


def settings(name: str, implementation: str, **parameters: object) -> str:
    return json.dumps({"name": name, "implementation": implementation, "parameters": parameters})


def manifest(steps: list[dict[str, object]], outputs: list[str]) -> str:
    return json.dumps(
        {
            "apiVersion": "mlops.seldon.io/v1alpha1",
            "kind": "Pipeline",
            "metadata": {"name": "graph"},
            "spec": {"steps": steps, "output": {"steps": outputs}},
        }
    )


def folder(at: Path, models: dict[str, str], graph: str | None) -> Path:
    """Writes models by name and class, a graph of them, and settings that both servers understand."""
    at.mkdir(parents=True)
    (at / "settings.json").write_text(json.dumps({"debug": False, "parallel_workers": 1}))
    for name, implementation in models.items():
        (at / name).mkdir(parents=True)
        (at / name / "models.py").write_text(MODELS)
        (at / name / "model-settings.json").write_text(settings(name, f"models.{implementation}"))
    if graph is not None:
        (at / "graph").mkdir()
        (at / "graph" / "graph.json").write_text(graph)
        (at / "graph" / "model-settings.json").write_text(settings("graph", "mlserver.Graph", uri="./graph.json"))
    return at


def ask(connection: http.client.HTTPConnection, model: str) -> None:
    connection.request("POST", f"/v2/models/{model}/infer", BODY, {"content-type": "application/json"})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise Failed(f"{model} answered {response.status}: {body[:300]!r}")


# Each thread has a state of its own, and one connection.
SCRIPT = """
local paths = {%s}
local calls = 0
wrk.method = 'POST'
wrk.body = [[%s]]
wrk.headers['Content-Type'] = 'application/json'

request = function()
  calls = calls + 1
  return wrk.format(nil, paths[calls %% #paths + 1])
end
"""


def wrk(port: int, models: list[str], clients: int, seconds: int) -> float:
    """Returns how many times a second all of the models were asked, one after the other."""
    paths = ", ".join(f"'/v2/models/{model}/infer'" for model in models)
    with tempfile.TemporaryDirectory() as at:
        script = Path(at) / "post.lua"
        script.write_text(SCRIPT % (paths, BODY.decode()))
        load = [f"-t{clients}", f"-c{clients}", f"-d{seconds}s", "-s", str(script)]
        command = ["wrk", *load, f"http://127.0.0.1:{port}"]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", report)
    if found is None or "Non-2xx" in report or "Socket errors" in report:
        raise Failed(report)
    return float(found[1]) / len(models)


def compare_instructions() -> None:
    per_request = {}
    for mode in ("each", "graph"):
        low, high = (instructions(mode, requests) for requests in (2000, 4000))
        per_request[mode] = (high - low) / 2000
        print(f"three native models, {mode}: {per_request[mode]:.0f} instructions a request", flush=True)
    print(f"ratio: {per_request['graph'] / per_request['each']:.2f} (target at most 1.3)", flush=True)


def compare_echoes(ours: Path, original: Path, rounds: int, seconds: int, clients: int) -> None:
    echoes = {"first": "Echo", "second": "Echo"}
    chain = manifest([{"name": "first"}, {"name": "second", "inputs": ["first"]}], ["second"])
    with tempfile.TemporaryDirectory() as at:
        models = folder(Path(at) / "ours", echoes, chain)
        theirs = folder(Path(at) / "original", echoes, None)
        program = Program("mlserver", lambda _: [str(ours.resolve()), "start", str(models)])
        # Not resolved: the executable of a virtual environment is a link.
        peer = Program("MLServer 1.7.1", lambda _: [str(original.absolute()), "start", str(theirs)])
        with running(program, Path(at)) as a, running(peer, Path(at)) as b:
            asked = {"mlserver": (a.port, ["graph"]), "MLServer 1.7.1": (b.port, ["first", "second"])}
            rates: dict[str, list[float]] = {name: [] for name in asked}
            for number in range(rounds + 1):
                for name in sorted(asked, reverse=number % 2 == 1):
                    rate = wrk(*asked[name], clients, seconds)
                    if number:  # the first round warms up
                        rates[name].append(rate)
        for name, measured in rates.items():
            median, least, most = statistics.median(measured), min(measured), max(measured)
            print(f"two echoes in Python, {name}: {median:.0f}/s ({least:.0f} to {most:.0f})")
        medians = [statistics.median(measured) for measured in rates.values()]
        print(f"ratio: {medians[0] / medians[1]:.1f} (target at least 8)", flush=True)


def measure_branches(ours: Path) -> None:
    names = ["w1", "w2", "w3", "w4"]
    parallel = manifest([{"name": name} for name in names], names)
    with tempfile.TemporaryDirectory() as at:
        models = folder(Path(at) / "models", dict.fromkeys(names, "Waits"), parallel)
        with running(Program("mlserver", lambda _: [str(ours.resolve()), "start", str(models)]), Path(at)) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            times = []
            for _ in range(200):
                start = time.perf_counter()
                ask(connection, "graph")
                times.append(time.perf_counter() - start)
    print(f"four branches of 50 ms: p50 {statistics.median(times) * 1e3:.1f} ms (target 60)")


PARTS = ["instructions", "echoes", "branches"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares graphs with calls of their models.")
    parser.add_argument("ours", type=Path)
    parser.add_argument("original", type=Path, help="MLServer 1.7.1")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of a round")
    parser.add_argument("--clients", type=int, default=16, help="the connections to each server")
    args = parser.parse_args()
    print(machine())
    if "instructions" in args.parts:
        compare_instructions()
    if "echoes" in args.parts:
        compare_echoes(args.ours, args.original, args.rounds, args.seconds, args.clients)
    if "branches" in args.parts:
        measure_branches(args.ours)


if __name__ == "__main__":
    main()
