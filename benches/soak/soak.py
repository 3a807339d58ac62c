"""Runs the server for hours with mixed traffic, compares every answer, and samples memory, descriptors, threads and latencies.

    python3 -m venv ENV && ENV/bin/pip install numpy==2.4.6 scikit-learn==1.9.1 xgboost-cpu==3.2.0
    cargo build --profile dist
    python3.11 benches/soak/soak.py run --ours target/dist/mlserver --python ENV/bin/python --out soak --hours 8
    python3.11 benches/soak/soak.py plot --out soak

`run` starts two servers: `plain`, with native models, models in Python, graphs, and a native model in a process of its own; and
`secured`, with TLS and API keys. It sends ordinary and hostile requests in random order. Samples, events and wrong answers are
appended to `samples.jsonl`. The same command resumes an interrupted run. `plot` can be called while the test runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

BENCHES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHES / "serving"))

import attacks
import report
from run import INFER, MODELS, REPOSITORY, free_ports, tree

import client
from client import Grpc, Http, Wrong
from tls import certificate

JSON = {"content-type": "application/json"}
LENGTH = "inference-header-content-length"
GRAPH = REPOSITORY / "examples" / "graph-ensemble"
#: Rows for the native models; what the libraries predict for them is computed once.
ROWS = [[5.1, 3.5, 1.4, 0.2], [5.9, 3.0, 4.2, 1.5], [6.2, 2.8, 4.8, 1.8], [7.7, 2.6, 6.9, 2.3], [4.6, 3.6, 1.0, 0.2]]
#: The outputs that the XGBoost model is asked for.
PREDICTED = ("predict", "predict_proba")
EXPECTED = """
import json, sys
import joblib, numpy, xgboost
rows = numpy.array(json.loads(sys.argv[1]))
booster = xgboost.Booster(model_file=sys.argv[2])
iris = booster.inplace_predict(rows.astype(numpy.float32))
logistic = joblib.load(sys.argv[3])
wide = numpy.resize(rows, (len(rows), logistic.n_features_in_))
found = {"iris": iris.tolist(), "wide": wide.tolist(), "logistic": logistic.predict(wide).tolist()}
print(json.dumps(found))
"""
#: Seconds after a worker was killed, or a model was reloaded, during which its requests may be rejected with 503.
GRACE = 45.0
LARGEST_LOG = 32 * 1024 * 1024


# --- servers ---------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A server of the test."""

    name: str
    ours: Path
    folder: Path
    log: Path
    environment: dict[str, str]
    port: int = 0
    grpc_port: int = 0
    metrics_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server on free ports."""
        self.port, self.grpc_port, self.metrics_port = free_ports(3)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MLSERVER_")}
        environment |= {
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": str(self.port),
            "MLSERVER_GRPC_PORT": str(self.grpc_port),
            "MLSERVER_METRICS_PORT": str(self.metrics_port),
            **self.environment,
        }
        with self.log.open("ab") as sink:
            command = [str(self.ours), "start", str(self.folder)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment
            )

    @property
    def pid(self) -> int:
        """The process id of the started server."""
        assert self.process is not None
        return self.process.pid

    def stop(self) -> None:
        """Asks the server to end, and kills it with all that it has started if it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        started = tree(self.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in started[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def write_settings(path: Path, name: str, implementation: str, **parameters: object) -> None:
    """Writes the settings of a model."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {"name": name, "implementation": implementation, "parameters": parameters}
    (path / "model-settings.json").write_text(json.dumps(settings))


def python_model(folder: Path, register: Path, name: str, kind: str, pool: str = "default") -> None:
    """Writes a model in Python."""
    extra = {"register": str(register), "pool": pool}
    parameters = {} if pool == "default" else {"inference_pool_gid": pool}
    write_settings(folder / name, name, f"soak_models.{kind}", extra=extra, **parameters)
    shutil.copy(Path(__file__).with_name("models.py"), folder / name / "soak_models.py")


def write_models(out: Path, python: Path) -> None:
    """Writes the models of both servers."""
    plain, secured, register = out / "plain", out / "secured", out / "workers"
    register.mkdir()
    # all native families that hostile requests are sent to, and `echo`, the identity model
    attacks.models(plain, python)
    for path in GRAPH.iterdir():
        if path.is_dir():
            shutil.copytree(path, plain / path.name)
    for name, more in (("spare", {}), ("isolated", {"isolate": True})):
        shutil.copytree(MODELS / "iris-xgboost", plain / name)
        settings = json.loads((plain / name / "model-settings.json").read_text())
        settings["name"] = name
        settings["parameters"] |= more
        (plain / name / "model-settings.json").write_text(json.dumps(settings))
    for name, kind, pool in (
        ("coroutine", "Echo", "default"),
        ("plain", "Plain", "default"),
        ("first", "Echo", "default"),
        ("second", "Plain", "default"),
        ("reloaded", "Plain", "default"),
        ("words-stream", "Words", "default"),
        ("victim", "Plain", "victim"),
        ("crash", "Crash", "crash"),
    ):
        python_model(plain, register, name, kind, pool)
    manifest = {
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "chain"},
        "spec": {
            "steps": [{"name": "first"}, {"name": "second", "inputs": ["first"]}],
            "output": {"steps": ["second"]},
        },
    }
    write_settings(plain / "chain", "chain", "mlserver.Graph", uri="./graph.json")
    (plain / "chain" / "graph.json").write_text(json.dumps(manifest))
    shutil.copytree(MODELS / "iris-xgboost", secured / "iris-xgboost")
    python_model(secured, register, "plain", "Plain", "default")
    (plain / "settings.json").write_text(json.dumps({"debug": False, "parallel_workers": 2}))
    (secured / "settings.json").write_text(json.dumps({"debug": False, "parallel_workers": 1}))


# --- the test --------------------------------------------------------------------------------------------------------


@dataclass
class Kind:
    """A kind of request: how often it is sent, and where its latency belongs."""

    name: str
    weight: float
    send: Callable[[], Awaitable[float | None]]
    group: str | None = None
    #: The model whose workers may just have been killed, or which may just have been unloaded.
    disturbed: str | None = None


class Rejected(Exception):
    """The server rejected a request as it may."""


@dataclass
class Soak:
    """The state of a run."""

    out: Path
    args: argparse.Namespace
    servers: dict[str, Server]
    expected: dict[str, list]
    run: int
    before: float
    began: float = field(default_factory=time.monotonic)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    latency: dict[str, dict[str, int]] = field(default_factory=dict)
    disturbed: dict[str, float] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    in_flight: set[asyncio.Task[None]] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    held: list[client.Streams] = field(default_factory=list)
    skipped: int = 0

    def __post_init__(self) -> None:
        plain, secured = self.servers["plain"], self.servers["secured"]
        context = ssl.create_default_context(cafile=str(self.out / "server.pem"))
        over_h2 = ssl.create_default_context(cafile=str(self.out / "server.pem"))
        over_h2.set_alpn_protocols(["h2"])
        key = {"authorization": f"Bearer {(self.out / 'ci.key').read_text().strip()}"}
        self.http = Http(plain.port)
        self.metrics = Http(plain.metrics_port)
        self.grpc = Grpc(plain.grpc_port)
        self.secured = Http(secured.port, context, key)
        self.strangers = Http(secured.port, context)
        self.secured_grpc = Grpc(secured.grpc_port, over_h2, key)
        self.random = random.Random()
        self.measurements = (GRAPH / "request.json").read_bytes()
        self.verdict = json.loads((GRAPH / "answer.json").read_text())["outputs"]

    # --- the file

    @property
    def hours(self) -> float:
        """Hours of the whole test, without the time between its runs."""
        return self.before + (time.monotonic() - self.began) / 3600

    def write(self, event: str, **content: object) -> None:
        """Appends a line to the file of samples."""
        line = {
            "event": event,
            "time": round(time.time(), 1),
            "hours": round(self.hours, 5),
            "run": self.run,
            **content,
        }
        with (self.out / "samples.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    # --- checks

    def tensors(self, answer: client.Answer) -> dict[str, list]:
        """The outputs of a response of V2 by their names, without their shapes."""
        if answer.status in (429, 503):
            raise Rejected(answer.body[:200].decode(errors="replace"))
        if answer.status != 200:
            raise Wrong(f"{answer.status}: {answer.body[:200]!r}")
        return {one["name"]: one["data"] for one in json.loads(answer.body)["outputs"]}

    def same(self, found: object, wanted: object) -> None:
        """Fails if an answer is not the expected one."""
        if found != wanted:
            raise Wrong(f"{str(found)[:200]} instead of {str(wanted)[:200]}")

    def close(self, found: list[float], wanted: list[float], tolerance: float = 1e-6) -> None:
        """Fails if numbers differ by more than their last digits."""
        if len(found) != len(wanted) or any(abs(a - b) > tolerance * max(1, abs(b)) for a, b in zip(found, wanted)):
            raise Wrong(f"{str(found)[:200]} instead of {str(wanted)[:200]}")

    # --- requests of an ordinary day

    def rows(self) -> list[int]:
        """Indexes of one to five rows."""
        return self.random.choices(range(len(ROWS)), k=self.random.choice((1, 1, 1, 5)))

    def v2(self, name: str, datatype: str, rows: list[list[float]], outputs: tuple[str, ...] = ()) -> bytes:
        data = [value for row in rows for value in row]
        tensor = {"name": name, "shape": [len(rows), len(rows[0])], "datatype": datatype, "data": data}
        wanted = {"outputs": [{"name": one} for one in outputs]} if outputs else {}
        return json.dumps({"id": f"{self.random.random()}", "inputs": [tensor], **wanted}).encode()

    async def iris(self, http: Http, model: str) -> float:
        chosen = self.rows()
        body = self.v2("input-0", "FP32", [ROWS[at] for at in chosen], PREDICTED)
        answer, took = await client.timed(http.ask("POST", f"/v2/models/{model}/infer", body, JSON))
        found = self.tensors(answer)
        wanted = [self.expected["iris"][at] for at in chosen]
        self.same(found["predict"], [row.index(max(row)) for row in wanted])
        self.close(found["predict_proba"], [value for row in wanted for value in row])
        return took

    async def iris_v1(self) -> float:
        chosen = self.rows()
        body = json.dumps({"instances": [ROWS[at] for at in chosen]}).encode()
        answer, took = await client.timed(self.http.ask("POST", "/v1/models/iris-xgboost:predict", body, JSON))
        self.same(answer.status, 200)
        wanted = [self.expected["iris"][at] for at in chosen]
        self.same(json.loads(answer.body), {"predictions": [row.index(max(row)) for row in wanted]})
        return took

    async def logistic(self) -> float:
        chosen = self.rows()
        body = self.v2("x", "FP64", [self.expected["wide"][at] for at in chosen])
        answer, took = await client.timed(self.http.ask("POST", "/v2/models/logistic/infer", body, JSON))
        self.same(self.tensors(answer)["predict"], [self.expected["logistic"][at] for at in chosen])
        return took

    def numbers(self, rows: int, columns: int) -> list[list[float]]:
        return [[self.random.randint(-(10**6), 10**6) / 1024 for _ in range(columns)] for _ in range(rows)]

    async def echo(self, http: Http, model: str) -> float:
        rows = self.numbers(self.random.choice((1, 1, 100)), 4)
        answer, took = await client.timed(
            http.ask("POST", f"/v2/models/{model}/infer", self.v2("x", "FP64", rows), JSON)
        )
        self.same(self.tensors(answer)["x"], [value for row in rows for value in row])
        return took

    async def binary(self, model: str) -> float:
        rows = self.random.choice((1, 64, 1000))
        data = self.random.randbytes(rows * 64 * 4)
        tensor = {"name": "x", "shape": [rows, 64], "datatype": "UINT32", "parameters": {"binary_data_size": len(data)}}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        headers = {"content-type": "application/octet-stream", LENGTH: str(len(head))}
        answer, took = await client.timed(self.http.ask("POST", f"/v2/models/{model}/infer", head + data, headers))
        if answer.status == 503:
            raise Rejected(answer.body[:200].decode(errors="replace"))
        self.same(answer.status, 200)
        if answer.body[int(answer.headers[LENGTH]) :] != data:
            raise Wrong("other binary data")
        return took

    async def grpc_iris(self, grpc: Grpc) -> float:
        at = self.random.randrange(len(ROWS))
        message = client.infer_message(
            "iris-xgboost", "input-0", "FP32", [1, 4], struct.pack("<4f", *ROWS[at]), PREDICTED
        )
        answer, took = await client.timed(grpc.infer(message))
        if answer is None:
            raise Wrong("the call failed")
        raw = [content for number, content in client.fields_of(answer) if number == 6]
        wanted = self.expected["iris"][at]
        self.same(struct.unpack("<q", raw[0])[0], wanted.index(max(wanted)))
        self.close(list(struct.unpack("<3f", raw[1])), wanted)
        return took

    async def grpc_echo(self, grpc: Grpc, model: str) -> float:
        data = self.random.randbytes(64 * 8)
        answer, took = await client.timed(grpc.infer(client.infer_message(model, "x", "INT64", [1, 64], data)))
        if answer is None:
            raise Rejected("the call failed")
        self.same([content for number, content in client.fields_of(answer) if number == 6], [data])
        return took

    async def graph(self) -> float:
        answer, took = await client.timed(self.http.ask("POST", "/v2/models/ensemble/infer", self.measurements, JSON))
        found = self.tensors(answer)
        for one in self.verdict:
            if one["datatype"] == "BYTES":
                self.same(found[one["name"]], one["data"])
            else:
                self.close(found[one["name"]], one["data"])
        return took

    async def stream(self) -> float:
        words = [f"word{self.random.randrange(1000)}" for _ in range(self.random.randrange(1, 20))]
        answer, took = await client.timed(
            self.http.ask("POST", "/v2/models/words-stream/infer_stream", self.text(words), JSON)
        )
        if answer.status == 503:
            raise Rejected(answer.body[:200].decode(errors="replace"))
        self.same(answer.status, 200)
        events = [line[5:] for line in answer.body.decode().splitlines() if line.startswith("data:")]
        self.same([json.loads(event)["outputs"][0]["data"][0] for event in events], words)
        return took

    def text(self, words: list[str]) -> bytes:
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [" ".join(words)]}
        return json.dumps({"inputs": [tensor]}).encode()

    async def health(self) -> float:
        answer, took = await client.timed(self.http.ask("GET", "/v2/health/live"))
        self.same(answer.status, 200)
        return took

    async def scrape(self) -> None:
        answer = await self.metrics.ask("GET", "/metrics")
        self.same((answer.status, b"model_infer_request_success" in answer.body), (200, True))

    # --- mistakes of clients

    async def invalid(self) -> None:
        path, body, status = self.random.choice(
            (
                (INFER, b'{"inputs":[{"name":"x","shape":[1,4],"data', (400, 422)),
                (INFER, self.v2("input-0", "FP32", [[1.0, 2.0]]), (400, 422)),
                (f"/v2/models/unknown-{self.random.random()}/infer", self.v2("x", "FP32", [[1.0]]), (404,)),
                (f"/v2/nothing/{self.random.random()}", b"{}", (404,)),
            )
        )
        answer = await self.http.ask("POST", path, body, JSON)
        if answer.status not in status:
            raise Wrong(f"{answer.status} for an invalid request: {answer.body[:200]!r}")

    async def disconnect(self) -> None:
        model = self.random.choice(("iris-xgboost", "plain", "coroutine", "chain", "ensemble"))
        sent = self.http.request("POST", f"/v2/models/{model}/infer", self.v2("x", "FP64", self.numbers(50, 4)), JSON)
        cut = self.random.choice((len(sent), len(sent), len(sent) // 2, 30, 0))
        await self.http.leave(sent[:cut])

    async def leave_stream(self) -> None:
        sent = self.http.request(
            "POST", "/v2/models/words-stream/infer_stream", self.text([f"word{at}" for at in range(400)]), JSON
        )
        await self.http.leave(sent, b"data:")

    async def stranger(self) -> None:
        headers = self.random.choice(({}, {"authorization": "Bearer mls_0123456789"}))
        answer = await self.strangers.ask("POST", INFER, self.v2("input-0", "FP32", [ROWS[0]]), JSON | headers)
        self.same(answer.status, 401)

    # --- what disturbs models

    def disturb(self, model: str) -> None:
        self.disturbed[model] = time.monotonic()

    async def reload(self) -> None:
        """Reloads a model while it is used, which nobody may notice."""
        model = self.random.choice(("iris-xgboost", "reloaded", "isolated", "ensemble", "chain", "coroutine"))
        self.write("reload", model=model)
        answer = await self.http.ask("POST", f"/v2/repository/models/{model}/load")
        if answer.status == 503:
            raise Rejected(answer.body[:200].decode(errors="replace"))
        if answer.status != 200:
            raise Wrong(f"load of {model}: {answer.status} {answer.body[:200]!r}")

    async def unload(self) -> None:
        """Unloads a model and loads it again."""
        self.write("unload", model="spare")
        for verb in ("unload", "load"):
            self.disturb("spare")
            answer = await self.http.ask("POST", f"/v2/repository/models/spare/{verb}")
            if answer.status != 200:
                raise Wrong(f"{verb} of spare: {answer.status} {answer.body[:200]!r}")
            self.disturb("spare")

    async def kill(self) -> None:
        """Kills the worker of a model, and of a native model in a process of its own."""
        which = self.random.choice(("victim", "isolated"))
        for pid in tree(self.servers["plain"].pid)[1:]:
            if self.name(pid) == f"plain {which}":
                self.write("kill", worker=which, pid=pid)
                self.disturb(which)
                os.kill(pid, signal.SIGKILL)

    async def crash(self) -> None:
        """Has a model end its worker."""
        self.write("crash")
        self.disturb("crash")
        answer = await self.http.ask("POST", "/v2/models/crash/infer", self.v2("x", "FP64", [[13.0]]), JSON)
        self.disturb("crash")
        if answer.status != 503:
            raise Wrong(f"{answer.status} from a worker that has ended: {answer.body[:200]!r}")

    # --- hostile clients

    async def attack(self) -> None:
        attack = self.random.choice(self.hostile)
        server = self.servers["plain"]
        found = await asyncio.to_thread(attacks.send, server, attack)
        self.write("attack", name=attack.name, answer=found)
        if found.startswith("5") and found != "503":
            raise Wrong(f"{attack.name}: {found}")

    async def hold(self) -> None:
        """Holds idle connections, requests without their bodies and health watches; closes those from before."""
        for _, writer in self.held:
            writer.transport.abort()
        self.held.clear()
        plain = self.servers["plain"]
        silent = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n".encode()
        for port, first in ((plain.port, b""), (plain.port, silent), (plain.grpc_port, attacks.watch_of_health())) * 15:
            streams = await asyncio.open_connection("127.0.0.1", port)
            streams[1].write(first)
            self.held.append(streams)

    def kinds(self) -> list[Kind]:
        """Everything that is sent, with the number of times per 1,000 ordinary requests."""
        self.hostile = list(attacks.attacks())
        rate = self.args.rate

        def per_minute(times: float) -> float:
            return times / 60 / rate * 1000

        return [
            Kind("V2 JSON, native", 160, lambda: self.iris(self.http, "iris-xgboost"), "native"),
            Kind("V1, native", 80, self.iris_v1, "native"),
            Kind("V2 JSON, scikit-learn", 60, self.logistic, "native"),
            Kind("gRPC, native", 80, lambda: self.grpc_iris(self.grpc), "native"),
            Kind("V2 JSON, identity", 20, lambda: self.echo(self.http, "echo"), "native"),
            Kind("V2 binary, identity", 20, lambda: self.binary("echo"), "native, binary"),
            Kind("isolated native model", 40, lambda: self.iris(self.http, "isolated"), "isolated", "isolated"),
            Kind("V2 JSON, Python coroutine", 60, lambda: self.echo(self.http, "coroutine"), "Python"),
            Kind("V2 JSON, Python function", 60, lambda: self.echo(self.http, "plain"), "Python"),
            Kind("V2 binary, Python", 20, lambda: self.binary("plain"), "Python, binary"),
            Kind("gRPC, Python", 40, lambda: self.grpc_echo(self.grpc, "coroutine"), "Python"),
            Kind("model in Python that is reloaded", 20, lambda: self.echo(self.http, "reloaded"), "Python"),
            Kind("graph of native models", 60, self.graph, "graph"),
            Kind("graph of models in Python", 40, lambda: self.echo(self.http, "chain"), "graph of Python"),
            Kind("stream", 30, self.stream, "stream"),
            Kind("TLS and key, native", 60, lambda: self.iris(self.secured, "iris-xgboost"), "TLS"),
            Kind("TLS and key, Python", 20, lambda: self.echo(self.secured, "plain"), "TLS"),
            Kind("TLS and key, gRPC", 20, lambda: self.grpc_iris(self.secured_grpc), "TLS"),
            Kind("TLS without a key", 10, self.stranger),
            Kind("health", 20, self.health, "health"),
            Kind("metrics", 5, self.scrape),
            Kind("invalid request", 30, self.invalid),
            Kind("disconnect", 30, self.disconnect),
            Kind("disconnect from a stream", 10, self.leave_stream),
            Kind("model that is unloaded at times", 20, lambda: self.iris(self.http, "spare"), None, "spare"),
            Kind("model whose worker is killed", 20, lambda: self.echo(self.http, "victim"), None, "victim"),
            Kind("model that crashes", 10, lambda: self.echo(self.http, "crash"), None, "crash"),
            Kind("reload", per_minute(1), self.reload),
            Kind("unload and load", per_minute(0.5), self.unload),
            Kind("kill of a worker", per_minute(0.3), self.kill),
            Kind("crash of a model", per_minute(0.2), self.crash),
            Kind("hostile request", per_minute(self.args.attacks), self.attack),
            Kind("held connections", per_minute(1), self.hold),
        ]

    async def one(self, kind: Kind) -> None:
        """Sends one request of a kind and counts the result."""
        counts = self.counts.setdefault(kind.name, {})
        try:
            async with asyncio.timeout(120):
                took = await kind.send()
            result = "ok"
            if took is not None and kind.group is not None:
                of_group = self.latency.setdefault(kind.group, {})
                index = str(report.bucket(took))
                of_group[index] = of_group.get(index, 0) + 1
        except asyncio.CancelledError:
            raise
        except Exception as error:
            recent = kind.disturbed and time.monotonic() - self.disturbed.get(kind.disturbed, -GRACE) < GRACE
            absent = kind.disturbed == "spare" and ("404" in str(error) or "not ready yet" in str(error))
            allowed = recent and (isinstance(error, Rejected) or absent)
            result = "rejected" if allowed else "wrong"
            # Each kind of mistake is written a limited number of times, and counted always.
            self.written[kind.name] = self.written.get(kind.name, 0) + 1
            if not allowed and self.written[kind.name] <= 100:
                self.write("wrong", kind=kind.name, error=f"{type(error).__name__}: {error}"[:500])
        counts[result] = counts.get(result, 0) + 1

    # --- samples

    def name(self, pid: int) -> str:
        """The name of a process of a server."""
        if pid not in self.names:
            for name, server in self.servers.items():
                if server.pid == pid:
                    self.names[pid] = f"{name} server"
            try:
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"mlserver\0score"):
                    self.names[pid] = "plain isolated"
                elif (self.out / "workers" / str(pid)).exists():
                    server = next(name for name, one in self.servers.items() if pid in tree(one.pid))
                    self.names[pid] = f"{server} {(self.out / 'workers' / str(pid)).read_text()}"
            except (OSError, StopIteration):
                pass
        return self.names.get(pid, "starting")

    def sample(self) -> None:
        """Writes the state of all processes and the counts since the start."""
        processes = []
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        ticks = os.sysconf("SC_CLK_TCK")
        # Process ids are used again.
        living = {pid for server in self.servers.values() for pid in tree(server.pid)}
        self.names = {pid: name for pid, name in self.names.items() if pid in living}
        for server in self.servers.values():
            for pid in tree(server.pid):
                try:
                    figures = dict(
                        line.split(":", 1)
                        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                        if ":" in line
                    )
                    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    processes.append(
                        {
                            "name": self.name(pid),
                            "pid": pid,
                            "age": round(uptime - int(stat[19]) / ticks, 1),
                            "rss": int(figures["VmRSS"].split()[0]) * 1024,
                            "anonymous": int(figures["RssAnon"].split()[0]) * 1024,
                            "peak": int(figures["VmHWM"].split()[0]) * 1024,
                            "threads": int(figures["Threads"]),
                            "fds": len(os.listdir(f"/proc/{pid}/fd")),
                            "cpu": (int(stat[11]) + int(stat[12])) / ticks,
                        }
                    )
                except (OSError, KeyError):
                    continue
        self.write(
            "sample",
            processes=processes,
            counts=self.counts,
            latency=self.latency,
            skipped=self.skipped,
            client_cpu=round(time.process_time(), 2),
            load=os.getloadavg()[0],
        )
        self.latency = {}

    def look_at_servers(self) -> None:
        """Notes servers that have ended, and starts them again; keeps the logs short."""
        for server in self.servers.values():
            if server.process is not None and (code := server.process.poll()) is not None:
                tail = server.log.read_text(errors="replace")[-2000:]
                self.write("server ended", server=server.name, code=code, log=tail)
                raise SystemExit(f"the server `{server.name}` has ended with {code}; its log is {server.log}")
            if server.log.stat().st_size > LARGEST_LOG:
                os.truncate(server.log, 0)

    async def ready(self) -> None:
        """Waits until both servers are ready."""
        for http in (self.http, self.secured):
            for _ in range(3000):
                try:
                    if (await http.ask("GET", "/v2/health/ready")).status == 200:
                        break
                except OSError:
                    pass
                self.look_at_servers()
                await asyncio.sleep(0.2)
            else:
                raise SystemExit("a server was not ready after ten minutes")

    async def go(self) -> None:
        """Sends requests until the time is over."""
        await self.ready()
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        self.write("start", rate=self.args.rate, attacks=self.args.attacks, machine=machine)
        kinds = self.kinds()
        weights = [kind.weight for kind in kinds]
        until = time.monotonic() + (self.args.hours - self.before) * 3600
        next_sample = next_request = time.monotonic()
        while (now := time.monotonic()) < until:
            if now >= next_sample:
                self.look_at_servers()
                self.sample()
                next_sample = max(next_sample + self.args.every, now)
            # Clients do not wait for each other: the gaps are random, and independent of the answers.
            while next_request <= now:
                next_request += self.random.expovariate(self.args.rate)
                if len(self.in_flight) >= 200:
                    self.skipped += 1
                    continue
                task = asyncio.create_task(self.one(self.random.choices(kinds, weights)[0]))
                self.in_flight.add(task)
                task.add_done_callback(self.in_flight.discard)
            await asyncio.sleep(max(0.0, min(next_request, next_sample) - time.monotonic()))
        await asyncio.gather(*self.in_flight)
        self.sample()
        self.write("end")


def run(args: argparse.Namespace) -> None:
    """Prepares a folder, starts the servers and sends requests."""
    out: Path = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    lines = report.read(out / "samples.jsonl") if (out / "samples.jsonl").exists() else []
    before = max((line["hours"] for line in lines), default=0.0)
    if before >= args.hours:
        raise SystemExit(f"{before:.2f} h are done; --hours is the length of the whole test")
    if not (out / "expected.json").exists():
        for name in ("plain", "secured", "workers"):
            shutil.rmtree(out / name, ignore_errors=True)
        # copied, because the build folder may change during the test
        shutil.copy2(args.ours.resolve(), out / "mlserver")
        write_models(out, args.python.absolute())
        certificate(out, days=400)
        keys = out / "keys.json"
        keys.unlink(missing_ok=True)
        create = [
            str(out / "mlserver"),
            "keys",
            "create",
            "--name",
            "soak",
            "--scope",
            "infer",
            "--scope",
            "read",
            "--file",
            str(keys),
        ]
        (out / "ci.key").write_text(subprocess.run(create, check=True, capture_output=True, text=True).stdout)
        command = [
            str(args.python),
            "-c",
            EXPECTED,
            json.dumps(ROWS),
            str(out / "plain" / "iris-xgboost" / "model.json"),
        ]
        command.append(str(out / "plain" / "logistic" / "model.joblib"))
        (out / "expected.json").write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for old in (out / "workers").iterdir():
        old.unlink()
    python = {"MLSERVER_PYTHON_EXECUTABLE": str(args.python.absolute())}
    tls = {
        "MLSERVER_TLS_CERTIFICATE": str(out / "server.pem"),
        "MLSERVER_TLS_KEY": str(out / "server.key"),
        "MLSERVER_API_KEYS_FILE": str(out / "keys.json"),
    }
    servers = {
        "plain": Server("plain", out / "mlserver", out / "plain", out / "plain.log", python),
        "secured": Server("secured", out / "mlserver", out / "secured", out / "secured.log", python | tls),
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    number = max((line["run"] for line in lines), default=0) + 1
    try:
        for server in servers.values():
            server.start()
        soak = Soak(out, args, servers, json.loads((out / "expected.json").read_text()), number, before)
        asyncio.run(soak.go())
    finally:
        for server in servers.values():
            server.stop()
    print(report.summary(report.read(out / "samples.jsonl")))


def plot(args: argparse.Namespace) -> None:
    """Draws the diagrams and prints the figures."""
    lines = report.read(args.out / "samples.jsonl")
    (args.out / "soak.svg").write_text(report.draw(lines))
    print(report.summary(lines))
    print()
    print(report.slopes([line for line in lines if line["event"] == "sample"], args.after))
    print(f"\n{args.out / 'soak.svg'}")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description="Runs the server for hours with mixed traffic.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="start the servers and send requests, or continue")
    running.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    running.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="a Python with numpy, scikit-learn 1.9.1 and xgboost"
    )
    running.add_argument("--out", type=Path, required=True, help="folder for models, logs and samples")
    running.add_argument("--hours", type=float, default=8, help="length of the whole test, over all runs")
    running.add_argument("--rate", type=float, default=20, help="requests per second")
    running.add_argument("--attacks", type=float, default=3, help="hostile requests per minute")
    running.add_argument("--every", type=float, default=15, help="seconds between samples")
    drawing = commands.add_parser("plot", help="draw diagrams of the samples, and print slopes of memory")
    drawing.add_argument("--out", type=Path, required=True, help="the folder of `run`")
    drawing.add_argument("--after", type=float, default=20, help="minutes of a process that slopes leave out")
    args = parser.parse_args()
    {"run": run, "plot": plot}[args.command](args)


if __name__ == "__main__":
    main()
