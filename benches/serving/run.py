"""Compares the server with a bare hyper server and MLServer 1.7.1, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/run.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

Three parts: requests per second, time from start to ready, resident memory over 100,000 requests. Everything is on
loopback, on free ports, with bounded rounds; every process started here is ended here, by its id. Prints Markdown.
Anything that cannot be measured ends the run with an error. Needs `wrk` (a Debian package) and Python's standard
library; the peer is installed into `--env` the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / "examples" / "quickstart"
INFER = "/v2/models/iris-xgboost/infer"
READY = "/v2/health/ready"
# one row of four FP32 features, the smallest request that does the whole work
BODY = json.dumps(
    {"inputs": [{"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": [6.2, 2.8, 4.8, 1.8]}]}
).encode()
PEER = [
    "mlserver==1.7.1",
    "mlserver-xgboost==1.7.1",
    "mlserver-lightgbm==1.7.1",
    # the newest uvloop no longer has what 1.7.1 starts with
    "uvloop<0.22",
    # the releases that wrote the quickstart models
    "xgboost==3.2.0",
    "lightgbm==4.7.0",
]
SAMPLES = (50_000, 75_000, 100_000)
MIB = 1024 * 1024


class Failed(Exception):
    """The run cannot continue, for the reason in the message."""


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A started server."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    grpc_port: int
    log: Path
    ready_ms: float = 0.0

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join(f"    {line}" for line in lines)


@dataclass
class Program:
    """How to start a server: the command and whether it takes the port as an address argument."""

    name: str
    command: Callable[[int], list[str]]
    ready_path: str = READY
    environment: dict[str, str] = field(default_factory=dict)
    # how the port is asked whether it is ready, if it uses TLS
    tls: ssl.SSLContext | None = None


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def answers(port: int, path: str, tls: ssl.SSLContext | None = None) -> int | None:
    """The status that a GET is answered with, None while nobody listens."""
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            if tls is not None:
                stream = stack.enter_context(tls.wrap_socket(stream, server_hostname="localhost"))
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            head = stream.recv(64)
    except OSError:
        return None
    found = re.match(rb"HTTP/1\.[01] (\d+)", head)
    return int(found.group(1)) if found else None


def start(program: Program, folder: Path, limit: float = 90.0) -> Server:
    """Starts a server and waits until it is ready, asking every millisecond."""
    http_port, grpc_port, metrics_port = free_ports(3)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLSERVER_")}
    environment.update(
        MLSERVER_HOST="127.0.0.1",
        MLSERVER_HTTP_PORT=str(http_port),
        MLSERVER_GRPC_PORT=str(grpc_port),
        MLSERVER_METRICS_PORT=str(metrics_port),
        **program.environment,
    )
    log = folder / f"{program.name}.log"
    # both servers may leave files where they run
    work = folder / f"{program.name}.work"
    work.mkdir(exist_ok=True)
    with log.open("wb") as sink:
        began = time.perf_counter()
        process = subprocess.Popen(
            program.command(http_port), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, cwd=work
        )
    server = Server(program.name, process, http_port, grpc_port, log)
    while answers(http_port, program.ready_path, program.tls) != 200:
        if process.poll() is not None:
            raise Failed(f"{program.name} ended with {process.returncode} before it was ready\n{server.tail()}")
        if time.perf_counter() - began > limit:
            stop(server)
            raise Failed(f"{program.name} was not ready after {limit:.0f} s\n{server.tail()}")
        time.sleep(0.001)
    server.ready_ms = (time.perf_counter() - began) * 1000
    return server


def tree(pid: int) -> list[int]:
    """The process and all its descendants that live now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting.extend(children.get(one, ()))
    return found


def stop(server: Server) -> None:
    """Asks the server to end, and after twenty seconds makes it; so also what it had started."""
    if server.process.poll() is not None:
        return
    started = tree(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(20)
    except subprocess.TimeoutExpired:
        print(f"{server.name}: still there 20 s after SIGTERM, killed", file=sys.stderr)
        server.process.kill()
        server.process.wait()
    for pid in started[1:]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def running(program: Program, folder: Path) -> Iterator[Server]:
    server = start(program, folder)
    try:
        yield server
    finally:
        stop(server)


def resident(pid: int) -> int:
    """Resident bytes of the process and its descendants, summed (what they share counts for each)."""
    total = 0
    for one in tree(pid):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        total += int(found.group(1)) * 1024 if found else 0
    return total


# --- requests --------------------------------------------------------------------------------------------------------


def infer(port: int) -> bytes:
    """One request; returns the answer's body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", INFER, BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"infer was answered {response.status}: {body[:300]!r}")
    return body


def check_answer(name: str, body: bytes) -> list[object]:
    """The `predict` output of an answer, which has to be one INT64."""
    outputs = {output["name"]: output for output in json.loads(body)["outputs"]}
    predict = outputs.get("predict")
    if predict is None or predict["datatype"] != "INT64" or predict["shape"] != [1, 1]:
        raise Failed(f"{name} answered something else: {body[:300]!r}")
    data: list[object] = predict["data"]
    return data


def wrk(
    port: int,
    script: Path,
    connections: int,
    threads: int,
    seconds: float,
    path: str = INFER,
    scheme: str = "http",
) -> dict[str, float]:
    """One round of load; requests per second and latencies in milliseconds."""
    command = ["wrk", "--latency", f"-t{threads}", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "10s"]
    command += ["-s", str(script), f"{scheme}://127.0.0.1:{port}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    text = done.stdout
    if done.returncode != 0 or "Non-2xx" in text or "Socket errors" in text:
        raise Failed(f"wrk: {text}{done.stderr}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise Failed(f"wrk said something else: {text}")
    result = {"rate": float(rate.group(1))}
    for name in ("50", "99"):
        found = re.search(rf"^\s+{name}%\s+([\d.]+)(us|ms|s)", text, re.MULTILINE)
        if found is None:
            raise Failed(f"wrk gave no {name}% latency: {text}")
        result[name] = float(found.group(1)) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found.group(2)]
    return result


async def send_many(port: int, count: int, connections: int) -> None:
    """Sends exactly `count` requests over kept connections, and looks at each status."""
    head = f"POST {INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
    left = count

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while left > 0:
                left -= 1
                writer.write(request)
                top = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: (\d+)\r\n", top, re.IGNORECASE)
                if length is None or b" 200 " not in top[:20]:
                    raise Failed(f"a request was answered {top!r}")
                await reader.readexactly(int(length.group(1)))
        finally:
            writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))


# --- parts -----------------------------------------------------------------------------------------------------------


def throughput(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Rounds of load, one server after the other, in an order that turns with each round."""
    script = folder / "infer.lua"
    body = BODY.decode().replace("'", "\\'")
    script.write_text(f"wrk.method = 'POST'\nwrk.body = '{body}'\nwrk.headers['content-type'] = 'application/json'\n")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(programs[name], folder)) for name in ("ours", "peer")}
        found = {name: check_answer(name, infer(server.port)) for name, server in servers.items()}
        if found["ours"] != found["peer"]:
            raise Failed(f"the servers do not agree: {found}")
        (folder / "answer.json").write_bytes(infer(servers["ours"].port))
        for name in ("echo", "bare"):
            servers[name] = stack.enter_context(running(programs[name], folder))
        names = ["ours", "echo", "bare", "peer"]
        for name in names:
            wrk(servers[name].port, script, args.connections, args.threads, 2)
        for turn in range(args.rounds):
            for place in range(len(names)):
                name = names[(turn + place) % len(names)]
                found_now = wrk(servers[name].port, script, args.connections, args.threads, args.seconds)
                results[name].append(found_now)
                print(f"round {turn + 1}: {name} {found_now['rate']:.0f}/s", file=sys.stderr, flush=True)
    rates = {name: statistics.median(one["rate"] for one in rounds) for name, rounds in results.items()}
    print(f"\n### `POST infer`, 1x4 FP32, {args.connections} connections\n")
    print("| server | requests/s | min | max | p50 ms | p99 ms |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, rounds in results.items():
        every = [one["rate"] for one in rounds]
        middle = {key: statistics.median(one[key] for one in rounds) for key in ("50", "99")}
        print(
            f"| {LABELS[name]} | {rates[name]:.0f} | {min(every):.0f} | {max(every):.0f} "
            f"| {middle['50']:.3f} | {middle['99']:.3f} |"
        )
    print("\n| ratio | measured | target |\n|---|---:|---:|")
    print(f"| ours / bare hyper, same headers | {rates['ours'] / rates['echo']:.3f} | 0.80 |")
    print(f"| ours / bare hyper, content type only | {rates['ours'] / rates['bare']:.3f} | |")
    print(f"| ours / MLServer 1.7.1 | {rates['ours'] / rates['peer']:.1f} | 50 |")
    return {"rounds": results, "medians": rates}


def startup(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Times from start to the first 200 of the readiness check, alternating."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(args.starts):
        for name, found in times.items():
            with running(programs[name], folder) as server:
                found.append(server.ready_ms)
            print(f"start {turn + 1}: {name} {found[-1]:.1f} ms", file=sys.stderr, flush=True)
    print(f"\n### Start to ready, quickstart, {args.starts} starts each\n")
    print("| server | median ms | min | max | target |\n|---|---:|---:|---:|---:|")
    for name, found in times.items():
        target = "50" if name == "ours" else ""
        print(f"| {LABELS[name]} | {statistics.median(found):.1f} | {min(found):.1f} | {max(found):.1f} | {target} |")
    return {name: {"median": statistics.median(found), "all": found} for name, found in times.items()}


def memory(programs: dict[str, Program], folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Resident memory before and during 100,000 requests."""
    results: dict[str, list[int]] = {}
    for name in ("ours", "peer"):
        with running(programs[name], folder) as server:
            infer(server.port)
            found, sent = [resident(server.process.pid)], 0
            for count in SAMPLES:
                asyncio.run(send_many(server.port, count - sent, args.connections))
                sent = count
                found.append(resident(server.process.pid))
                print(f"memory: {name} {count} requests {found[-1] / MIB:.1f} MiB", file=sys.stderr, flush=True)
            results[name] = found
    columns = " | ".join(f"after {count:,}" for count in SAMPLES)
    print(f"\n### Resident memory, quickstart, MiB\n\n| server | ready | {columns} | last half grew | target |")
    print("|---|" + "---:|" * (len(SAMPLES) + 3))
    for name, found in results.items():
        target = "40, flat" if name == "ours" else ""
        grew = (found[-1] - found[1]) / MIB
        values = " | ".join(f"{value / MIB:.1f}" for value in found)
        print(f"| {LABELS[name]} | {values} | {grew:+.2f} | {target} |")
    return dict(results)


LABELS = {
    "ours": "mlserver (ours)",
    "echo": "bare hyper server, the same bytes with our headers",
    "bare": "bare hyper server, the same body with a content type only",
    "peer": "MLServer 1.7.1, one worker",
}
CONTENT_TYPE = "content-type:application/json"
# What ours adds to an answer; the id is as long as those it makes.
HEADERS = [
    CONTENT_TYPE,
    "ce-specversion:0.3",
    "ce-type:io.seldon.serving.inference.response",
    "ce-source:io.seldon.serving.deployment.mlserver",
    "ce-modelid:iris-xgboost",
    "ce-inferenceservicename:mlserver",
    "ce-endpoint:iris-xgboost",
    "ce-id:00000000-0000-4000-8000-000000000000",
    "ce-requestid:00000000-0000-4000-8000-000000000000",
]
PARTS = {"throughput": throughput, "startup": startup, "memory": memory}


# --- setting up ------------------------------------------------------------------------------------------------------


def install_peer(folder: Path) -> Path:
    """The peer's program; makes its environment if it is not there or was made from other pins."""
    binary = folder / "peer" / "bin" / "mlserver"
    made = folder / "peer" / "made-from.txt"
    wanted = "\n".join(PEER)
    if not (binary.exists() and made.exists() and made.read_text() == wanted):
        print(f"installing MLServer 1.7.1 into {folder / 'peer'}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "peer")], check=True)
        pip = [str(folder / "peer" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PEER], check=True)
        made.write_text(wanted)
    return binary


def build_example(name: str) -> Path:
    """A bare server's program, built now."""
    command = ["cargo", "build", "--profile", "dist", "--example", name, "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("target", {}).get("name") == name:
            return Path(message["executable"])
    raise Failed(f"cargo built no `{name}`")


def machine() -> str:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    load = os.getloadavg()[0]
    return f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the server with others, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--echo", type=Path, help="the bare hyper server (default: builds it)")
    parser.add_argument("--env", type=Path, required=True, help="folder for the peer's virtual environment")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of load for each server")
    parser.add_argument("--seconds", type=float, default=5, help="length of a round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="threads of wrk")
    parser.add_argument("--starts", type=int, default=20, help="starts of each server")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    args = parser.parse_args()
    try:
        if args.rounds < 5:
            raise Failed("--rounds: a median of fewer than five says little")
        if not args.ours.is_file():
            raise Failed(f"--ours: there is no file `{args.ours}`")
        if shutil.which("wrk") is None:
            raise Failed("`wrk` is not installed (apt-get install wrk)")
        peer = install_peer(args.env.resolve())
        echo = (args.echo or build_example("echo")).resolve()
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            # copied, because the build folder may change during the run
            ours = folder / "ours"
            shutil.copy2(args.ours.resolve(), ours)
            def answering(port: int) -> list[str]:
                return [str(echo), f"127.0.0.1:{port}", str(folder / "answer.json")]

            programs = {
                "ours": Program("ours", lambda port: [str(ours), "start", str(MODELS)]),
                "echo": Program("echo", lambda port: [*answering(port), *HEADERS]),
                "bare": Program("bare", lambda port: [*answering(port), CONTENT_TYPE]),
                "peer": Program(
                    "peer",
                    lambda port: [str(peer), "start", str(MODELS)],
                    environment={"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_DEBUG": "false"},
                ),
            }
            print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
            results = {part: PARTS[part](programs, folder, args) for part in args.only}
        left_out = [part for part in PARTS if part not in args.only]
        if left_out:
            print(f"\nNot measured, by --only: {', '.join(left_out)}.")
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
