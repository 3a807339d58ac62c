"""Compares models in Python with MLServer 1.7.1 and mosec, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/workers.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

All of them have one worker and the same work: tensors become NumPy arrays, and the arrays become tensors again. What comes
back is compared before anything is timed. Needs `wrk` and `h2load` (Debian's `wrk` and `nghttp2-client`).

`--before EXECUTABLE` measures an older executable in the same rounds, instead of the peers:

    python3.11 benches/serving/workers.py --ours target/dist/mlserver --before older/mlserver --env ~/.cache/mlserver-bench
"""

from __future__ import annotations

import argparse
import array
import http.client
import json
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from run import Failed, Program, install_peer, machine, running, wrk

LENGTH = "inference-header-content-length"
INFER = "/v2/models/echo/infer"
GRPC = "/inference.GRPCInferenceService/ModelInfer"
# What our workers and mosec run on; MLServer has an environment of its own.
LIBRARIES = ["mosec==0.9.8", "numpy==2.4.6"]

MODEL = '''import time

import numpy

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    async def predict(self, payload):
        arrays = [(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output(name, one) for name, one in arrays]
        return InferenceResponse(model_name=self.name, outputs=outputs)


class Plain(MLModel):
    """The same as a plain function."""

    def predict(self, payload):
        arrays = [(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output(name, one) for name, one in arrays]
        return InferenceResponse(model_name=self.name, outputs=outputs)


class Sort(MLModel):
    """Sorts a million numbers, during which NumPy releases the global interpreter lock."""

    def load(self):
        self.weights = numpy.random.default_rng(1).random(1_000_000)
        return True

    def predict(self, payload):
        numpy.sort(self.weights)
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("x", array)])


class Busy(MLModel):
    """Keeps a core busy for 5 ms of its own time."""

    async def predict(self, payload):
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("x", array)])
'''

MOSEC = '''import numpy
from mosec import Server, Worker

DTYPES = {"FP32": numpy.float32}
NAMES = {numpy.dtype(dtype): name for name, dtype in DTYPES.items()}


class Echo(Worker):
    def forward(self, data):
        arrays = [(one["name"], numpy.array(one["data"], DTYPES[one["datatype"]]).reshape(one["shape"]))
                  for one in data["inputs"]]
        outputs = [{"name": name, "shape": list(one.shape), "datatype": NAMES[one.dtype], "data": one.ravel().tolist()}
                   for name, one in arrays]
        return {"model_name": "echo", "outputs": outputs}


if __name__ == "__main__":
    server = Server()
    server.append_worker(Echo, num=1)
    server.run()
'''


@dataclass
class Case:
    """One line of a table: a server and what is sent to it."""

    label: str
    server: str
    body: bytes
    path: str = INFER
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    grpc: bool = False
    #: What it is compared with, and how many times as fast it should be.
    targets: dict[str, float] = field(default_factory=dict)


# --- requests --------------------------------------------------------------------------------------------------------


def numbers(shape: list[int]) -> array.array[float]:
    """The elements of a tensor."""
    seed = random.Random(1)
    count = shape[0] * shape[1]
    return array.array("f", (seed.uniform(-1, 1) for _ in range(count)))


def as_json(shape: list[int]) -> bytes:
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": numbers(shape).tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


def as_binary(shape: list[int]) -> tuple[bytes, dict[str, str]]:
    """A request of the binary tensor extension that wants its answer so, too, and its headers."""
    data = numbers(shape).tobytes()
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + data, {LENGTH: str(len(head))}


def as_grpc(shape: list[int]) -> bytes:
    """A gRPC message of a `ModelInferRequest` with raw contents."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    def field_of(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    tensor = field_of(1, b"x") + field_of(2, b"FP32") + field_of(3, b"".join(map(varint, shape)))
    message = field_of(1, b"echo") + field_of(5, tensor) + field_of(7, numbers(shape).tobytes())
    return b"\0" + struct.pack(">I", len(message)) + message


def check(port: int, case: Case, shape: list[int]) -> None:
    """Sends one request and fails when other numbers come back."""
    if case.grpc:
        return  # `h2load` counts what is not answered with 200; the tests look at the rest
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", case.path, case.body, case.headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{case.label} was answered {response.status}: {body[:300]!r}")
    if length := response.headers.get(LENGTH):
        found = body[int(length) :]
    else:
        found = array.array("f", json.loads(body)["outputs"][0]["data"]).tobytes()
    if found != numbers(shape).tobytes():
        raise Failed(f"{case.label} answered other numbers")


# --- load ------------------------------------------------------------------------------------------------------------


def script(folder: Path, name: str, case: Case) -> Path:
    """Writes what is sent: the body, and for `wrk` how."""
    body, lua = folder / f"{name}.body", folder / f"{name}.lua"
    body.write_bytes(case.body)
    headers = "".join(f"wrk.headers['{key}'] = '{value}'\n" for key, value in case.headers.items())
    lua.write_text(f"wrk.method = 'POST'\nwrk.body = io.open('{body}', 'rb'):read('*a')\n{headers}")
    return body if case.grpc else lua


def h2load(port: int, body: Path, connections: int, seconds: float) -> dict[str, float]:
    """One round of gRPC calls; answers per second, of which all must be good."""
    command = ["h2load", f"-c{connections}", "-m1", "-t1", f"-D{max(1, round(seconds))}", "--warm-up-time=1", "-d", str(body)]
    command += ["-w24", "-W26", "-H", "content-type: application/grpc", "-H", "te: trailers"]
    command += [f"http://127.0.0.1:{port}{GRPC}"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False).stdout
    rate = re.search(r"finished in [^,]+, ([\d.]+) req/s", text)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    middle = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", text)
    if rate is None or counts is None or middle is None or int(counts[1]) == 0 or any(map(int, counts.groups()[1:])):
        raise Failed(f"h2load: {text}")
    return {"rate": float(rate[1]), "50": float(middle[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[middle[2]]}


def available(cases: dict[str, Case], programs: dict[str, Program]) -> dict[str, Case]:
    """Returns the cases whose servers run, each with its twin of the older executable, if that runs."""
    found = {}
    for name, case in cases.items():
        targets = {peer: wanted for peer, wanted in case.targets.items() if cases[peer].server in programs}
        older = programs.get(f"before-{case.server}")
        if older is not None:
            found[f"before-{name}"] = replace(case, label=f"{case.label}, before", server=older.name, targets={})
            targets[f"before-{name}"] = 1
        if case.server in programs:
            found[name] = replace(case, targets=targets)
    return found


def measure(title: str, cases: dict[str, Case], programs: dict[str, Program], folder: Path, shape: list[int],
            connections: int, args: argparse.Namespace) -> None:  # fmt: skip
    """Rounds of load, one case after the other, in an order that turns with each round; prints a table."""
    cases = available(cases, programs)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    with ExitStack() as stack:
        wanted = dict.fromkeys(case.server for case in cases.values())
        servers = {name: stack.enter_context(running(programs[name], folder)) for name in wanted}
        scripts = {}
        for name, case in cases.items():
            check(servers[case.server].port, case, shape)
            scripts[name] = script(folder, name, case)

        def load(name: str, seconds: float) -> dict[str, float]:
            case = cases[name]
            if case.grpc:
                return h2load(servers[case.server].grpc_port, scripts[name], connections, seconds)
            return wrk(servers[case.server].port, scripts[name], connections, 1, seconds, case.path)

        for name in cases:
            load(name, 1)
        names = list(cases)
        for turn in range(args.rounds):
            for place in range(len(names)):
                name = names[(turn + place) % len(names)]
                found[name].append(load(name, args.seconds))
                print(f"round {turn + 1}: {name} {found[name][-1]['rate']:.1f}/s", file=sys.stderr, flush=True)
    rates = {name: statistics.median(one["rate"] for one in rounds) for name, rounds in found.items()}
    print(f"\n### {title}\n\n| server | requests/s | min | max | p50 ms | ratio (target) |\n|---|---:|---:|---:|---:|---|")
    for name, rounds in found.items():
        every = [one["rate"] for one in rounds]
        middle = statistics.median(one["50"] for one in rounds)
        targets = [
            f"{rates[name] / rates[peer]:.2f} times {peer} ({wanted:g}{', **missed**' * (rates[name] < wanted * rates[peer])})"
            for peer, wanted in cases[name].targets.items()
        ]
        print(
            f"| {cases[name].label} | {rates[name]:.1f} | {min(every):.1f} | {max(every):.1f} | {middle:.3f} "
            f"| {'; '.join(targets)} |",
            flush=True,
        )


# --- parts -----------------------------------------------------------------------------------------------------------


def small(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> None:
    shape = [1, 4]
    body = as_json(shape)
    cases = {
        "ours": Case("mlserver", "ours", body, targets={"peer": 20, "mosec": 2.2}),
        "plain": Case("mlserver, plain function", "plain", body, "/v2/models/plain/infer", targets={"ours": 0.6}),
        "second": Case("mlserver, second model of the worker", "second", body, "/v2/models/plain-echo/infer"),
        "mosec": Case("mosec 0.9.8", "mosec", body, "/inference"),
        "peer": Case("MLServer 1.7.1", "peer", body),
    }
    measure("NumPy echo, 1x4 FP32, JSON, 16 connections", cases, programs, folder, shape, 16, args)


def large(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> None:
    shape = [1000, 256]
    body = as_json(shape)
    binary, headers = as_binary(shape)
    cases = {
        "binary": Case("mlserver, binary data", "ours", binary, headers=headers, targets={"peer": 60}),
        "grpc": Case("mlserver, gRPC raw", "ours", as_grpc(shape), grpc=True, targets={"peer": 60}),
        "json": Case("mlserver, JSON", "ours", body, targets={"peer": 12}),
        "mosec": Case("mosec 0.9.8, JSON", "mosec", body, "/inference"),
        "peer": Case("MLServer 1.7.1, JSON", "peer", body),
    }
    measure("NumPy echo, 1000x256 FP32, 4 connections", cases, programs, folder, shape, 4, args)


def scale(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> None:
    shape = [1, 4]
    body, path = as_json(shape), "/v2/models/busy/infer"
    cases = {
        "two": Case("mlserver, two workers", "two", body, path, targets={"one": 1.8}),
        "one": Case("mlserver, one worker", "one", body, path),
    }
    measure("5 ms of a core in each predict, 16 connections", cases, programs, folder, shape, 16, args)


def threads(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> None:
    shape = [1, 4]
    body = as_json(shape)
    cases = {
        "two": Case("mlserver, `threads` 2", "sort2", body, "/v2/models/sort2/infer", targets={"one": 1.5}),
        "one": Case("mlserver, `threads` 1", "sort", body, "/v2/models/sort/infer"),
    }
    measure("A million numbers sorted in each predict, one worker, 16 connections", cases, programs, folder, shape, 16, args)


PARTS = {"small": small, "large": large, "scale": scale, "threads": threads}


def install_libraries(folder: Path) -> Path:
    """The interpreter with mosec and NumPy; makes its environment if it is not there or was made from other pins."""
    home = folder / "workers"
    made = home / "made-from.txt"
    wanted = "\n".join(LIBRARIES)
    if not (made.exists() and made.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *LIBRARIES], check=True)
        made.write_text(wanted)
    return home / "bin" / "python"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares models in Python with others, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, required=True, help="folder for the peers' virtual environments")
    parser.add_argument("--before", type=Path, metavar="EXECUTABLE", help="an older binary of ours, instead of the peers")
    parser.add_argument("--peer", type=Path, help="MLServer's `mlserver`, instead of one in --env")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    args = parser.parse_args()
    try:
        for program in ("wrk", "h2load"):
            if shutil.which(program) is None:
                raise Failed(f"`{program}` is not installed (apt-get install wrk nghttp2-client)")
        python = install_libraries(args.env.resolve())
        peer = None if args.before else args.peer or install_peer(args.env.resolve())
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            ours = folder / "ours-binary"
            # copied, because the build folder may change during the run
            shutil.copy2(args.ours.resolve(), ours)
            before = folder / "before-binary"
            if args.before:
                shutil.copy2(args.before.resolve(), before)
            (folder / "app.py").write_text(MOSEC)

            def write_models(name: str, **models: str) -> str:
                """Writes a folder with models by name and class, each in one worker that only this folder uses."""
                for model, kind in models.items():
                    home = folder / name / model
                    home.mkdir(parents=True)
                    (home / "bench_models.py").write_text(MODEL)
                    parameters = {"threads": 2} if model == "sort2" else {}
                    settings = {"name": model.replace("_", "-"), "implementation": f"bench_models.{kind}", "parameters": parameters}
                    (home / "model-settings.json").write_text(json.dumps(settings))
                return str(folder / name)

            echo = write_models("echo", echo="Echo")
            busy = write_models("busy", busy="Busy")
            variables = {"MLSERVER_DEBUG": "false", "MLSERVER_PYTHON_EXECUTABLE": str(python)}

            programs: dict[str, Program] = {}

            def serve(name: str, models: str, workers: int = 1) -> None:
                """Adds our server, and the older one as `before-NAME`."""
                environment = {**variables, "MLSERVER_PARALLEL_WORKERS": str(workers)}
                programs[name] = Program(name, lambda port: [str(ours), "start", models], environment=environment)
                if args.before:
                    older = f"before-{name}"
                    programs[older] = Program(older, lambda port: [str(before), "start", models], environment=environment)

            serve("ours", echo)
            serve("plain", write_models("plain", plain="Plain"))
            serve("second", write_models("second", busy="Busy", plain_echo="Echo"))
            serve("sort", write_models("sort", sort="Sort"))
            serve("sort2", write_models("sort2", sort2="Sort"))
            serve("one", busy)
            serve("two", busy, workers=2)
            if peer is not None:
                programs["peer"] = Program(
                    "peer",
                    lambda port: [str(peer), "start", echo],
                    environment={"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_DEBUG": "false"},
                )
                programs["mosec"] = Program(
                    "mosec",
                    lambda port: [str(python), str(folder / "app.py"), "--address", "127.0.0.1", "--port", str(port)],
                    ready_path="/",
                )
            print(f"{machine()}; {args.rounds} rounds of {args.seconds:g} s; one worker each")
            for part in args.only:
                PARTS[part](programs, folder, args)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
