"""Measures what hostile clients can do: memory, and how long good clients wait meanwhile.

    python3 -m venv ENV && ENV/bin/pip install scikit-learn==1.9.1
    cargo build --profile dist
    python3.11 benches/serving/attacks.py --ours target/dist/mlserver --sklearn ENV/bin/python

`requests` sends each hostile request of up to 1 MB alone and twenty times at once, over REST and gRPC, to models of every native
family. `connections` opens 2,000 idle connections to a server with 1,024 file descriptors. `lockout` holds all connections of a server
with keys by watches of its health, and by requests without their bodies. `logs` never reads the server's log.
`overload` asks a model in Python for ten times what it can answer. Needs curl for HTTP/2, and root to reset peaks of memory.
What is not as it should be ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from run import BODY, INFER, MODELS, REPOSITORY, Program, Server, free_ports, machine, running

MIB = 1024
MEGABYTE = 1_000_000
WIDE = '''import sys, joblib
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
import numpy

wide = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(numpy.arange(100_000, dtype=float).reshape(-1, 1))
joblib.dump(wide, sys.argv[1] + "/wide/model.joblib")
words = numpy.array([["red"], ["green"], ["blue"]] * 10, dtype=object)
joblib.dump(make_pipeline(OrdinalEncoder(), LogisticRegression()).fit(words, [0, 1, 0] * 10), sys.argv[1] + "/words/model.joblib")
'''
SLOW = '''import time

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Slow(MLModel):
    def predict(self, payload):
        time.sleep(0.05)
        output = ResponseOutput(name="y", shape=[1], datatype="INT64", data=[1])
        return InferenceResponse(model_name=self.name, outputs=[output])
'''


@dataclass
class Attack:
    name: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    over_grpc: bool = False


# --- requests --------------------------------------------------------------------------------------------------------


def v2(model: str, *inputs: str, more: str = "") -> tuple[str, bytes]:
    return f"/v2/models/{model}/infer", f'{{{more}"inputs":[{",".join(inputs)}]}}'.encode()


def tensor(shape: str, datatype: str, data: str, more: str = "") -> str:
    return f'{{"name":"x",{more}"shape":{shape},"datatype":"{datatype}","data":{data}}}'


def fill(piece: str, around: int = 200) -> str:
    """Repeats a piece, with commas, to nearly a megabyte."""
    return ",".join([piece] * ((MEGABYTE - around) // (len(piece) + 1)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field_of(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def grpc(name: str, model: str, message: bytes, compressed: bool = False) -> Attack:
    message = field_of(1, model.encode()) + message
    headers = {"content-type": "application/grpc", "te": "trailers"}
    if compressed:
        message = gzip.compress(message, 9)
        headers["grpc-encoding"] = "gzip"
    framed = bytes([compressed]) + len(message).to_bytes(4, "big") + message
    return Attack(f"gRPC: {name} ({model})", "/inference.GRPCInferenceService/ModelInfer", framed, headers, True)


def attacks() -> Iterator[Attack]:
    models = ["iris-xgboost", "breast-cancer-lightgbm", "logistic", "words", "wide", "mlflow", "echo"]
    outputs = ",".join(['{"name":"predict"}'] * 20_000)
    declared = '{"name":"x","shape":[4000000000000000,1],"datatype":"BYTES","data":"a"}'
    for model in models:
        yield Attack(f"declared shape ({model})", *v2(model, declared))
        yield Attack(f"open dimension ({model})", *v2(model, tensor("[-1,4]", "FP64", f"[{fill('0')}]")))
        yield Attack(f"zeros ({model})", *v2(model, tensor("[499800,1]", "FP64", f"[{','.join(['0'] * 499_800)}]")))
        yield Attack(f"empty strings ({model})", *v2(model, tensor("[333000,1]", "BYTES", "[" + ",".join(['""'] * 333_000) + "]")))
        small = '{"name":"","shape":[-1],"datatype":"FP64","data":[1]}'
        yield Attack(f"small inputs ({model})", *v2(model, fill(small)))
        one = tensor("[1,4]", "FP32", "[6,2,4,1]")
        yield Attack(f"parameters ({model})", *v2(model, one, more=f'"parameters":{{"a":[{fill("0", 300)}]}},'))
        keys = ",".join(f'"{at}":0' for at in range(90_000))
        yield Attack(f"keys ({model})", *v2(model, one, more=f'"parameters":{{{keys}}},'))
        rows = ",".join(["0,0,0,0"] * 50_000)
        many = tensor("[50000,4]", "FP32", f"[{rows}]")
        yield Attack(f"20,000 outputs ({model})", *v2(model, many, more=f'"outputs":[{outputs}],'))
        path, body = v2(model, tensor("[-1,1]", "FP64", "[" + ",".join(["0"] * 4_000_000) + "]"))
        packed = {"content-type": "application/json", "content-encoding": "gzip"}
        yield Attack(f"gzip of zeros ({model})", path, gzip.compress(body, 9), packed)
        strings = ",".join(['""'] * 2_700_000)
        path, body = v2(model, tensor("[2700000,1]", "BYTES", f"[{strings}]"))
        yield Attack(f"gzip of empty strings ({model})", path, gzip.compress(body, 9), packed)
        names = b"".join(field_of(5, field_of(1, b"x")) for _ in range(150_000))
        yield grpc("empty inputs", model, names)
        contents = b"".join(field_of(8, b"") for _ in range(490_000))
        yield grpc("empty strings", model, field_of(5, field_of(1, b"x") + field_of(2, b"BYTES") + field_of(5, contents)))
        count = 8_000_000
        described = field_of(1, b"x") + field_of(2, b"INT64") + field_of(3, varint(count))
        zeros = field_of(5, described + field_of(5, field_of(3, bytes(count))))
        yield grpc("gzip of integers", model, zeros, True)
    rows = ",".join(["1"] * 140)
    yield Attack("wide output (wide)", *v2("wide", tensor("[140,1]", "FP64", f"[{rows}]")))
    yield Attack("deep (echo)", "/v2/models/echo/infer", b"[" * MEGABYTE)
    yield Attack("CSV of columns (mlflow)", "/invocations", b"a," * 499_000 + b"\n" + b"1\n" * 500, {"content-type": "text/csv"})
    yield Attack("CSV of quotes (mlflow)", "/invocations", b'"a""' * 250_000, {"content-type": "text/csv"})
    text = b'{"dataframe_split":{"columns":["a"],"data":[["' + b"x" * (MEGABYTE - 100) + b'"]]}}'
    yield Attack("long text (mlflow)", "/invocations", text)
    yield Attack("broken JSON (mlflow)", "/invocations", b'{"instances":[' + b"\x01" * (MEGABYTE - 100))
    lists = b'{"instances":[' + b",".join([b"[]"] * 330_000) + b"]}"
    yield Attack("instances (mlflow)", "/invocations", lists)


def peak(pid: int) -> int:
    return status(pid, "VmHWM:")


def status(pid: int, name: str) -> int:
    """Returns a figure of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise SystemExit("the server has ended")


def send(server: Server, attack: Attack) -> str:
    """Sends an attack, and returns the status of the answer."""
    if attack.over_grpc:
        # Twenty processes that begin at once would take the processors from the server, which has one process.
        command = ["nice", "-n", "19", "curl", "-s", "-m", "60", "--http2-prior-knowledge"]
        command += ["--data-binary", "@-", "-o", "/dev/null", "-D", "-"]
        for name, value in attack.headers.items():
            command += ["-H", f"{name}: {value}"]
        command.append(f"http://127.0.0.1:{server.grpc_port}{attack.path}")
        done = subprocess.run(command, input=attack.body, capture_output=True, timeout=90, check=False)
        found = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("grpc-status")]
        return found[0] if found else f"curl {done.returncode}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", attack.path, attack.body, attack.headers)
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except (OSError, http.client.HTTPException) as error:
        # The server may answer and close before it has read everything.
        return type(error).__name__
    finally:
        connection.close()


class Watch:
    """Asks good requests, one every ten milliseconds, and remembers the slowest answer.

    A process of its own with priority, so that what the attackers take of the machine does not count.
    """

    def __init__(self, server: Server) -> None:
        command = [sys.executable, __file__, "--watch", str(server.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.slowest = 0.0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        printed, _ = self.process.communicate()
        self.slowest = float(printed)


def watch(port: int) -> None:
    os.nice(-10)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    slowest = 0.0
    print("ready", flush=True)
    while True:
        began = time.perf_counter()
        connection.request("POST", INFER, BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        slowest = max(slowest, time.perf_counter() - began if response.status == 200 else float("inf"))
        if ended.wait(0.01):
            break
    print(slowest, flush=True)


def measure(server: Server, attack: Attack, times: int) -> tuple[float, float, set[str]]:
    """Sends an attack so many times at once; returns MiB more than before, the slowest good request, and all answers."""
    pid = server.process.pid
    time.sleep(0.05)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = status(pid, "VmRSS:")
    answers: list[str] = []
    with Watch(server) as watch:
        threads = [threading.Thread(target=lambda: answers.append(send(server, attack))) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return (peak(pid) - before) / MIB, watch.slowest * 1000, set(answers)


def requests(args: argparse.Namespace) -> bool:
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models(folder / "models", args.sklearn)
        every = list(attacks())
        # Twenty at once are limited by the byte budget, here that of a container of 1 GiB.
        for times, most, budget in ((1, 100.0, None), (20, 300.0, 256 << 20)):
            program = Program(f"attacked-{times}", lambda _: [str(args.ours), "start", str(folder / "models")])
            if budget is not None:
                program.environment["MLSERVER_MAX_REQUEST_BYTES_IN_FLIGHT"] = str(budget)
            with running(program, folder) as server:
                worst = {"memory": (0.0, ""), "good request": (0.0, "")}
                for attack in every:
                    memory, slowest, answers = measure(server, attack, times)
                    if args.verbose:
                        print(f"  {times} x {attack.name}: {memory:.0f} MiB, {slowest:.0f} ms, {sorted(answers)}", flush=True)
                    worst["memory"] = max(worst["memory"], (memory, attack.name))
                    worst["good request"] = max(worst["good request"], (slowest, attack.name))
                (memory, by), (slowest, slowest_by) = worst.values()
                good &= check(f"{times} at once, peak memory ({by})", memory, most, "MiB more")
                good &= check(f"{times} at once, slowest good request ({slowest_by})", slowest, 250.0, "ms")
                lives = server.process.poll() is None
                print(f"- {times} at once: {len(every)} attacks; the server {'lives' if lives else 'has ended'}", flush=True)
                good &= lives
    return good


def models(folder: Path, sklearn: Path) -> None:
    """Puts a model of every native family into a folder."""

    def model(name: str, implementation: str, **parameters: object) -> Path:
        (folder / name).mkdir(parents=True)
        settings = {"name": name, "implementation": implementation, "parameters": parameters}
        (folder / name / "model-settings.json").write_text(json.dumps(settings))
        return folder / name

    folder.mkdir(parents=True)
    for path in MODELS.iterdir():
        if (path / "model-settings.json").is_file():
            subprocess.run(["cp", "-r", str(path), str(folder / path.name)], check=True)
    for name in ("wide", "words", "logistic"):
        path = model(name, "mlserver_sklearn.SKLearnModel", uri="./model.joblib", extra={"backend": "native"})
        if name == "wide":
            settings = json.loads((path / "model-settings.json").read_text())
            settings["parameters"]["extra"]["predict_fn"] = "transform"
            (path / "model-settings.json").write_text(json.dumps(settings))
    subprocess.run([str(sklearn), "-c", WIDE, str(folder)], check=True)
    goldens = REPOSITORY / "tests" / "goldens"
    with tarfile.open(goldens / "sklearn" / "1.9.1.tar.gz") as archive:
        member = archive.extractfile("linear/logistic_2.joblib")
        assert member is not None
        (folder / "logistic" / "model.joblib").write_bytes(member.read())
    path = model("mlflow", "mlserver_mlflow.MLflowRuntime", uri="./model", extra={"backend": "native"})
    subprocess.run(["cp", "-r", str(goldens / "mlflow" / "pipeline" / "model"), str(path / "model")], check=True)
    model("echo", "mlserver_identity.IdentityModel")


# --- connections, logs, overload -------------------------------------------------------------------------------------


def connections(args: argparse.Namespace) -> bool:
    descriptors = 1024

    def limited(_: int) -> list[str]:
        return ["prlimit", f"--nofile={descriptors}:{descriptors}", str(args.ours), "start", str(MODELS)]

    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    with tempfile.TemporaryDirectory() as name, running(Program("connections", limited), Path(name)) as server:
        idle = []
        for index in range(2000):
            one = socket.socket()
            one.settimeout(5)
            try:
                one.connect(("127.0.0.1", server.port))
                if index % 2:
                    one.sendall(b"PRI * HTTP/2.0\r\n")
            except OSError:
                pass
            idle.append(one)
        times = []
        for _ in range(5):
            began = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            connection.request("POST", INFER, BODY, {"content-type": "application/json"})
            assert connection.getresponse().status == 200
            connection.close()
            times.append((time.perf_counter() - began) * 1000)
        return check("2,000 idle connections, 1,024 descriptors: a new client's answer", max(times), 1000.0, "ms")


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def watch_of_health() -> bytes:
    """What a gRPC client sends to begin a watch of the server's health, which needs no key."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Watch", ":authority": "localhost",
        "content-type": "application/grpc", "te": "trailers",
    }
    # Literal fields that no table holds.
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields.items()
    )
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block) + frame(0, 1, 1, b"\0" * 5)


def lockout(args: argparse.Namespace) -> bool:
    """Holds every connection with watches and silent senders, and times a caller with a key, over a new connection each time."""
    limit, calls = 60, 40
    silent = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n".encode()
    good = True
    for name, grpc, first in [("health watches", True, watch_of_health()), ("requests without their bodies", False, silent)]:
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys.json"
            created = [str(args.ours), "keys", "create", "--name", "ci", "--scope", "infer", "--file", str(keys)]
            key = subprocess.run(created, check=True, capture_output=True, text=True).stdout.strip()
            environment = {"MLSERVER_API_KEYS_FILE": str(keys), "MLSERVER_MAX_CONNECTIONS": str(limit)}
            program = Program("lockout", lambda _: [str(args.ours), "start", str(MODELS)], environment=environment)
            with running(program, Path(folder)) as server:
                held = []

                def hold(count: int, port: int = server.grpc_port if grpc else server.port, first: bytes = first) -> None:
                    for _ in range(count):
                        one = socket.create_connection(("127.0.0.1", port), timeout=5)
                        one.sendall(first)
                        held.append(one)

                hold(limit)
                time.sleep(0.5)
                times = []
                for _ in range(calls):
                    # The attacker goes on, and takes each connection again that the caller has needed.
                    hold(2)
                    began = time.perf_counter()
                    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
                    connection.request("POST", INFER, BODY, headers)
                    assert connection.getresponse().status == 200
                    connection.close()
                    times.append((time.perf_counter() - began) * 1000)
                for one in held:
                    one.close()
        good &= check(f"{limit} {name} of callers without a key: a caller with one, slowest of {calls}", max(times), 100.0, "ms")
    return good


def logs(args: argparse.Namespace) -> bool:
    reader, writer = os.pipe()
    http_port, grpc_port, metrics_port = free_ports(3)
    environment = dict(
        os.environ,
        MLSERVER_HOST="127.0.0.1",
        MLSERVER_HTTP_PORT=str(http_port),
        MLSERVER_GRPC_PORT=str(grpc_port),
        MLSERVER_METRICS_PORT=str(metrics_port),
        MLSERVER_DEBUG="true",
    )
    process = subprocess.Popen([str(args.ours), "start", str(MODELS)], stdout=writer, stderr=writer, env=environment)
    try:
        time.sleep(2)
        connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=30)
        slowest, count, until = 0.0, 0, time.monotonic() + args.seconds
        while time.monotonic() < until:
            began = time.perf_counter()
            connection.request("POST", INFER, BODY, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            slowest = max(slowest, time.perf_counter() - began)
            count += 1
        return check(f"nobody reads the log, {count} requests in {args.seconds} s: slowest", slowest * 1000, 100.0, "ms")
    finally:
        process.terminate()
        os.close(reader)
        process.wait(30)
        os.close(writer)


def overload(args: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "models" / "slow"
        model.mkdir(parents=True)
        (model / "slow.py").write_text(SLOW)
        (model / "model-settings.json").write_text(json.dumps({"name": "slow", "implementation": "slow.Slow"}))
        program = Program("overloaded", lambda _: [str(args.ours), "start", str(folder / "models")])
        with running(program, folder) as server:
            return asyncio.run(overloaded(server, args.seconds))


async def overloaded(server: Server, seconds: int) -> bool:
    content = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}).encode()
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    request = head.encode() + content
    statuses: dict[int, int] = {}
    times: list[float] = []

    async def ask() -> None:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        times.append(time.perf_counter() - began)
        code = int(answer[9:12]) if answer else 0
        statuses[code] = statuses.get(code, 0) + 1

    for _ in range(10):
        await ask()
    times.clear()
    statuses.clear()
    before = status(server.process.pid, "VmRSS:")
    most = before
    rate = 200
    tasks = set()
    began = time.perf_counter()
    for index in range(rate * seconds):
        wait = began + index / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if index % rate == 0:
            most = max(most, status(server.process.pid, "VmRSS:"))
    await asyncio.gather(*tasks)
    print(f"- 200 requests/s for {seconds} s, of which 20 can be answered: {dict(sorted(statuses.items()))}")
    good = set(statuses) <= {200, 503} and check("useful answers", -statuses.get(200, 0) / seconds, -16.0, "requests/s, negative")
    good &= check("slowest answer, 200 or 503", max(times), 2.0, "s")
    return good & check("memory", (most - before) / MIB, 50.0, "MiB more")


def check(what: str, found: float, bound: float, unit: str) -> bool:
    good = found <= bound
    print(f"- {what}: {found:.1f} {unit} (at most {bound:.1f}){'' if good else ', **missed**'}", flush=True)
    return good


def main() -> None:
    parts: dict[str, Callable[[argparse.Namespace], bool]] = {
        "requests": requests,
        "connections": connections,
        "lockout": lockout,
        "logs": logs,
        "overload": overload,
    }
    parser = argparse.ArgumentParser(description="Measures what hostile clients can do.")
    parser.add_argument("--ours", type=Path, default=REPOSITORY / "target" / "dist" / "mlserver", help="built with `--profile dist`")
    parser.add_argument("--sklearn", type=Path, help="a Python with scikit-learn 1.9.1, for `requests`")
    parser.add_argument("--only", choices=parts, action="append")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--verbose", action="store_true", help="print each attack")
    parser.add_argument("--watch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch is not None:
        watch(args.watch)
        return
    args.ours = args.ours.resolve()
    print(machine())
    results = [part(args) for name, part in parts.items() if not args.only or name in args.only]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
