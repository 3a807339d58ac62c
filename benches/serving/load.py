"""Measures life under load: ten times what a model can answer, and requests of which most are wrong.

    cargo build --profile dist
    python3.11 benches/serving/load.py --ours target/dist/mlserver

`overload` asks a batching model in Python, whose prediction takes a fixed time, for ten times what it can answer. Clients do
not wait for each other: each second has so many requests, independently of earlier ones. `mixed` sends good requests, broken
ones, requests for what is not there, and clients that leave in the middle and before the answer. Both need nothing but the
standard library. What is not as it should be ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from run import Program, Server, free_ports, machine, running

SLEEP = 0.1
BATCH = 8
QUEUE = 32

MODEL = f'''import time

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Slow(MLModel):
    def predict(self, payload):
        time.sleep({SLEEP})
        values = list(payload.inputs[0].data)
        output = ResponseOutput(name="y", shape=[len(values)], datatype="INT64", data=values)
        return InferenceResponse(model_name=self.name, outputs=[output])
'''


def body(shape: int = 1) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "shape": [shape], "datatype": "INT64", "data": [1]}]}).encode()


def post(path: str, content: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


class Client:
    """One connection, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        if b"transfer-encoding: chunked" in lines:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        else:
            await reader.readexactly(next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0))
        if b"connection: close" in lines:
            self.close()
        return int(head[9:12])

    async def leave(self, request: bytes) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        writer.transport.abort()

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def resident(pid: int) -> int:
    """Returns the resident memory of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("the server has ended")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def percentile(times: list[float], percent: float) -> float:
    return sorted(times)[min(int(len(times) * percent / 100), len(times) - 1)]


def check(what: str, found: float, bound: float, unit: str) -> bool:
    good = found <= bound
    print(f"- {what}: {found:.1f} {unit} (at most {bound:.1f}){'' if good else ', **missed**'}", flush=True)
    return good


async def overload(server: Server, metrics: int, args: argparse.Namespace) -> bool:
    port, pid = server.port, server.process.pid
    one = post("/v2/models/slow/infer", body())
    client = Client(port)
    alone = []
    for _ in range(10):
        asked = time.perf_counter()
        assert await client.ask(one) == 200
        alone.append(time.perf_counter() - asked)
    unloaded = statistics.median(alone)
    rate = 10 * BATCH / SLEEP
    accepted: list[float] = []
    counts = {200: 0, 503: 0}
    free: list[Client] = []
    tasks: set[asyncio.Task[None]] = set()

    async def request() -> None:
        mine = free.pop() if free else Client(port)
        asked = time.perf_counter()
        status = await mine.ask(one)
        counts[status] += 1
        if status == 200:
            accepted.append(time.perf_counter() - asked)
        free.append(mine)

    probes: list[float] = []
    memory: list[int] = []

    async def probe() -> None:
        clients = [(Client(port), get("/v2/health/ready")), (Client(metrics), get("/metrics"))]
        while True:
            for mine, question in clients:
                asked = time.perf_counter()
                assert await mine.ask(question) == 200
                probes.append(time.perf_counter() - asked)
            memory.append(resident(pid))
            await asyncio.sleep(0.25)

    began = time.perf_counter()
    probing = asyncio.create_task(probe())
    sent = 0
    while (passed := time.perf_counter() - began) < args.seconds:
        while sent < passed * rate:
            task = asyncio.create_task(request())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.002)
    probing.cancel()
    await asyncio.gather(*tasks)
    took = time.perf_counter() - began
    quarter = len(memory) // 4
    early, late = statistics.median(memory[quarter : 2 * quarter]), statistics.median(memory[-quarter:])
    print(f"\n### {sent / took:.0f} requests/s for {took:.0f} s, of which {counts[200] / took:.0f} can be answered\n")
    print(f"- answered {counts[200]}, refused {counts[503]}; unloaded {unloaded * 1000:.0f} ms; resident {late / 1024:.1f} MiB")
    bound = 3 * unloaded + QUEUE / BATCH * SLEEP
    return all([
        check("p99 of those answered", percentile(accepted, 99) * 1000, bound * 1000, "ms"),
        check("p99 of health and metrics", percentile(probes, 99) * 1000, 100, "ms"),
        check("memory of the last quarter against the second", late / early * 100, 102, "%"),
    ])


async def mixed(server: Server, _: int, args: argparse.Namespace) -> bool:
    port, pid = server.port, server.process.pid
    infer = "/v2/models/echo/infer"
    good, content = post(infer, body()), body()
    kinds = [
        (40, lambda n: (good, 200)),
        (15, lambda n: (post(infer, content[:30]), 422)),
        (10, lambda n: (post(infer, body(2)), 400)),
        (10, lambda n: (post(f"/v2/models/unknown-{n}/infer", content), 404)),
        (5, lambda n: (get(f"/v2/nothing/{n}"), 404)),
        (10, lambda n: (good[:-20], None)),
        (10, lambda n: (good, None)),
    ]
    weights = [weight for weight, _ in kinds]

    async def send(requests: int) -> None:
        numbers = iter(range(requests))

        async def some(seed: int) -> None:
            chance, client = random.Random(seed), Client(port)
            for number in numbers:
                request, status = chance.choices(kinds, weights)[0][1](number)
                if status is None:
                    await client.leave(request)
                else:
                    found = await client.ask(request)
                    assert found == status, (request, found)
            client.close()

        await asyncio.gather(*(some(seed) for seed in range(32)))

    async def settled(idle: int) -> int:
        for _ in range(100):
            if descriptors(pid) <= idle:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        return resident(pid)

    idle = descriptors(pid)
    cold = resident(pid)
    await send(args.warm_up)
    baseline = await settled(idle)
    steps = []
    began = time.perf_counter()
    for _ in range(10):
        await send(args.requests // 10)
        steps.append(await settled(idle))
    took = time.perf_counter() - began
    print(f"\n### {args.requests} mixed requests in {took:.0f} s\n")
    after = ", ".join(f"{step / 1024:.1f}" for step in steps)
    print(f"- resident {cold / 1024:.1f} MiB at first, {baseline / 1024:.1f} after {args.warm_up} requests, then {after}")
    return all([
        check("memory against its baseline", steps[-1] / baseline * 100, 105, "%"),
        check("descriptors", descriptors(pid), idle, ""),
    ])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures life under load.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the model")
    parser.add_argument("--only", choices=["overload", "mixed"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--warm-up", type=int, default=50_000)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = folder / "models"
        settings = {
            "slow": {"name": "slow", "implementation": "bench_slow.Slow", "max_batch_size": BATCH, "max_batch_time": 0.01,
                     "parameters": {"max_queue_requests": QUEUE}},
            "echo": {"name": "echo", "implementation": "mlserver_identity.IdentityModel"},
        }
        for name, one in settings.items():
            (models / name).mkdir(parents=True)
            (models / name / "model-settings.json").write_text(json.dumps(one))
        (models / "slow" / "bench_slow.py").write_text(MODEL)
        variables = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_PYTHON_EXECUTABLE": args.python}
        metrics = free_ports(1)[0]
        # What a file says counts for more than the environment.
        (models / "settings.json").write_text(json.dumps({"metrics_port": metrics}))
        program = Program("ours", lambda _: [str(args.ours.resolve()), "start", str(models)], environment=variables)
        good = True
        for name, work in (("overload", overload), ("mixed", mixed)):
            if args.only in (None, name):
                with running(program, folder) as server:
                    good &= asyncio.run(work(server, metrics, args))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
