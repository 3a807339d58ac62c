"""Counts the instructions in user space that a request takes the server, with callgrind: a figure without noise.

    apt-get install valgrind
    cargo build --profile dist && cp target/dist/mlserver /tmp/default
    cargo build --profile dist --features otel
    python3.11 benches/serving/instructions.py /tmp/default target/dist/mlserver

`POST infer` of one row to the quickstart's XGBoost model, over one kept connection. Each executable is run twice, with
`--requests` requests and with twice as many, so that the cost of starting and ending cancels out. `--keys` also counts
requests with an API key, which is one of 1 and one of 10,000 in the file. The server reads that file again every few seconds,
so both runs then take the same time.

`--protocols rest v1 grpc` counts the same row over V1 and gRPC (which needs `h2load`), and `--copies` counts the copies of
memory of a request instead, with DHAT.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from run import BODY, INFER, MODELS, Failed, Program, Server, machine, running

MODEL = "iris-xgboost"
# numbers of keys in the file; `None` without access control
WITHOUT_KEYS: tuple[int | None, ...] = (None,)
WITH_KEYS: tuple[int | None, ...] = (None, 1, 10_000)
ROW = json.loads(BODY)["inputs"][0]["data"]
V1 = f"/v1/models/{MODEL}:predict"
GRPC = "/inference.GRPCInferenceService/ModelInfer"
PROTOCOLS = ("rest", "v1", "grpc")


class Case(NamedTuple):
    """What is asked."""

    protocol: str
    #: How many keys there are, of which each request has one; `None` without access control.
    keys: int | None


def key(number: int) -> str:
    """A key as long as those of `mlserver keys create`."""
    return f"mls_{number:043}"


def write_keys(path: Path, count: int) -> None:
    def entry(number: int) -> dict[str, object]:
        digest = hashlib.sha256(key(number).encode()).hexdigest()
        return {"name": f"key-{number}", "hash": f"sha256:{digest}", "scopes": ["infer"]}

    path.write_text(json.dumps([entry(number) for number in range(count)]))
    path.chmod(0o600)


def grpc_message() -> bytes:
    """A `ModelInferRequest` of the row with raw contents, as a gRPC message."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    tensor = field(1, b"input-0") + field(2, b"FP32") + field(3, bytes([1, len(ROW)]))
    message = field(1, MODEL.encode()) + field(5, tensor) + field(7, struct.pack(f"<{len(ROW)}f", *ROW))
    return b"\0" + struct.pack(">I", len(message)) + message


def ask(server: Server, folder: Path, requests: int, protocol: str, headers: dict[str, str]) -> None:
    """Sends requests over one connection, one after the other."""
    if protocol == "grpc":
        (folder / "message").write_bytes(grpc_message())
        command = ["h2load", f"-n{requests}", "-c1", "-m1", "-d", str(folder / "message"), "-H", "te: trailers"]
        command += ["-H", "content-type: application/grpc", f"http://127.0.0.1:{server.grpc_port}{GRPC}"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if f" {requests} succeeded, 0 failed" not in text:
            raise Failed(f"h2load: {text}")
        return
    path, sent = (V1, json.dumps({"instances": [ROW]}).encode()) if protocol == "v1" else (INFER, BODY)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(requests):
        connection.request("POST", path, sent, headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failed(f"infer was answered {response.status}: {body[:300]!r}")
    connection.close()


def counted(
    executable: Path, folder: Path, requests: int, case: Case, seconds: float, copies: bool
) -> tuple[int, float]:
    """Counts a run that takes at least this many seconds, and returns the seconds that it took."""
    models = folder / "models"
    shutil.copytree(MODELS / MODEL, models / MODEL)
    headers = {"content-type": "application/json"}
    # The console's sampler reads a page of the kernel that valgrind does not map.
    environment = {"MLSERVER_CONSOLE": "false"}
    if case.keys is not None:
        write_keys(folder / "keys.json", case.keys)
        environment["MLSERVER_API_KEYS_FILE"] = str(folder / "keys.json")
        # one from the middle of the file
        headers["authorization"] = f"Bearer {key(case.keys // 2)}"
    counts = folder / "counts"
    tool = ["--tool=dhat", "--mode=copy", f"--dhat-out-file={folder / 'dhat'}", f"--log-file={counts}"]
    if not copies:
        tool = ["--tool=callgrind", f"--callgrind-out-file={counts}"]
    command = ["valgrind", *tool, str(executable), "start", str(models)]
    with running(Program("counted", lambda _: command, environment=environment), folder) as server:
        began = time.monotonic()
        ask(server, folder, requests, case.protocol, headers)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        took = time.monotonic() - began
    line = r"Total:\s+[\d,]+ bytes in ([\d,]+) blocks" if copies else r"^(?:summary|totals): (\d+)"
    found = re.search(line, counts.read_text(), re.MULTILINE)
    if found is None:
        raise Failed(f"valgrind counted nothing: {server.tail()}")
    return int(found[1].replace(",", "")), took


def per_request(executable: Path, requests: int, case: Case, copies: bool) -> float:
    counts, seconds = [], 0.0
    for count in (2 * requests, requests):
        with tempfile.TemporaryDirectory() as folder:
            found, took = counted(executable, Path(folder), count, case, seconds, copies)
        counts.append(found)
        seconds = took if case.keys is not None else 0.0
    return (counts[0] - counts[1]) / requests


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the instructions of a request.")
    parser.add_argument("executables", type=Path, nargs="+", help="ours, built with `--profile dist`")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--keys", action="store_true", help="also count requests with a key")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=["rest"], help="how the row is sent")
    parser.add_argument("--copies", action="store_true", help="count copies of memory instead of instructions")
    args = parser.parse_args()
    unit = "copies of memory" if args.copies else "instructions"
    print(machine())
    try:
        for executable in args.executables:
            for protocol in args.protocols:
                without = 0.0
                for keys in WITH_KEYS if args.keys and protocol != "grpc" else WITHOUT_KEYS:
                    found = per_request(executable.resolve(), args.requests, Case(protocol, keys), args.copies)
                    without = found if keys is None else without
                    case = "" if keys is None else f", with a key of {keys:,}: {found / without - 1:+.1%}"
                    print(f"{executable}, {protocol}: {found:.0f} {unit} a request{case}", flush=True)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
