"""Compares inference graphs with calls of their models one by one.

    apt-get install valgrind
    cargo build --release --bin mlserver --example graph
    python3.11 -m venv target/graph && target/graph/bin/pip install "mlserver==1.7.1" "uvloop<0.22"
    python3.11 benches/serving/graph.py target/release/mlserver target/graph/bin/mlserver

1. Instructions in user space for three native models in one process, as a graph and one by one (callgrind): twice with different numbers
   of requests, so that loading cancels out.
2. Requests/s of a graph of two echo models in Python, beside a client that calls both on the original, one after the other.
3. Latency of a graph of four branches that each wait for 50 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from run import Failed, Program, machine, running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "target" / "release" / "examples" / "graph"

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
    """Writes models by name and class, and a graph of them."""
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


def rate(port: int, models: list[str], clients: int, seconds: float) -> float:
    """Returns how many times a second all of the models were asked, one after the other."""
    counts = [0] * clients
    failures: list[BaseException] = []
    end = time.perf_counter() + seconds

    def client(index: int) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            while time.perf_counter() < end:
                for model in models:
                    ask(connection, model)
                counts[index] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / seconds


def wrk(port: int, model: str, clients: int, seconds: float) -> float:
    """Returns the requests/s of a load generator that costs less than the server."""
    script = Path(tempfile.mkdtemp()) / "post.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.body = [[{BODY.decode()}]]\nwrk.headers['Content-Type'] = 'application/json'\n")
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:.0f}s", "-s", str(script), url]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in found:
        raise Failed(found)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", found)[1])  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares graphs with calls of their models.")
    parser.add_argument("ours", type=Path)
    parser.add_argument("original", type=Path, help="MLServer 1.7.1")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(machine())

    per_request = {}
    for mode in ("each", "graph"):
        low, high = (instructions(mode, requests) for requests in (2000, 4000))
        per_request[mode] = (high - low) / 2000
        print(f"three native models, {mode}: {per_request[mode]:.0f} instructions a request", flush=True)
    print(f"ratio: {per_request['graph'] / per_request['each']:.2f} (target at most 1.3)", flush=True)

    echoes = {"first": "Echo", "second": "Echo"}
    chain = manifest([{"name": "first"}, {"name": "second", "inputs": ["first"]}], ["second"])
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as original:
        models = folder(Path(ours) / "models", echoes, chain)
        theirs = folder(Path(original) / "models", echoes, None)
        program = Program("ours", lambda _: [str(args.ours.resolve()), "start", str(models)])
        peer = Program("original", lambda _: [str(args.original.resolve().parent / args.original.name), "start", str(theirs)])
        with running(program, Path(ours)) as a, running(peer, Path(original)) as b:
            both: dict[str, list[float]] = {"ours": [], "original": []}
            for number in range(args.rounds + 1):
                rates = wrk(a.port, "graph", 16, 3), rate(b.port, ["first", "second"], 4, 3)
                if number:  # the first round warms up
                    both["ours"].append(rates[0])
                    both["original"].append(rates[1])
        for name, rates in both.items():
            print(f"two echoes in Python, {name}: {statistics.median(rates):.0f}/s ({min(rates):.0f} to {max(rates):.0f})")
        print(f"ratio: {statistics.median(both['ours']) / statistics.median(both['original']):.1f} (target 8)", flush=True)

    names = ["w1", "w2", "w3", "w4"]
    parallel = manifest([{"name": name} for name in names], names)
    with tempfile.TemporaryDirectory() as at:
        models = folder(Path(at) / "models", dict.fromkeys(names, "Waits"), parallel)
        with running(Program("ours", lambda _: [str(args.ours.resolve()), "start", str(models)]), Path(at)) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            times = []
            for _ in range(200):
                start = time.perf_counter()
                ask(connection, "graph")
                times.append(time.perf_counter() - start)
        print(f"four branches of 50 ms: p50 {statistics.median(times) * 1e3:.1f} ms (target 60)")


if __name__ == "__main__":
    main()
