"""Counts the instructions in user space that a request takes the server, with callgrind: a figure without noise.

    apt-get install valgrind
    cargo build --release && cp target/release/mlserver /tmp/default
    cargo build --release --features otel
    python3.11 benches/serving/instructions.py /tmp/default target/release/mlserver

`POST infer` of one row to the quickstart's XGBoost model, over one kept connection. Each executable is run twice, with
`--requests` requests and with twice as many, so that what starting and ending take cancels out.
"""

from __future__ import annotations

import argparse
import http.client
import re
import shutil
import tempfile
from pathlib import Path

from run import BODY, INFER, MODELS, Failed, Program, machine, running

MODEL = "iris-xgboost"


def ask(port: int, requests: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(requests):
        connection.request("POST", INFER, BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failed(f"infer was answered {response.status}: {body[:300]!r}")
    connection.close()


def instructions(executable: Path, folder: Path, requests: int) -> int:
    models = folder / "models"
    shutil.copytree(MODELS / MODEL, models / MODEL)
    counted = folder / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", str(executable), "start", str(models)]
    with running(Program("counted", lambda _: command), folder) as server:
        ask(server.port, requests)
    found = re.search(r"^(?:summary|totals): (\d+)", counted.read_text(), re.MULTILINE)
    if found is None:
        raise Failed(f"callgrind counted nothing: {server.tail()}")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the instructions of a request.")
    parser.add_argument("executables", type=Path, nargs="+", help="ours, release builds")
    parser.add_argument("--requests", type=int, default=5000)
    args = parser.parse_args()
    print(machine())
    for executable in args.executables:
        counts = []
        for requests in (args.requests, 2 * args.requests):
            with tempfile.TemporaryDirectory() as folder:
                counts.append(instructions(executable.resolve(), Path(folder), requests))
        print(f"{executable}: {(counts[1] - counts[0]) / args.requests:.0f} instructions a request", flush=True)


if __name__ == "__main__":
    main()
