"""Counts the instructions in user space that a request takes the server, with callgrind: a figure without noise.

    apt-get install valgrind
    cargo build --profile dist && cp target/dist/mlserver /tmp/default
    cargo build --profile dist --features otel
    python3.11 benches/serving/instructions.py /tmp/default target/dist/mlserver

`POST infer` of one row to the quickstart's XGBoost model, over one kept connection. Each executable is run twice, with
`--requests` requests and with twice as many, so that the cost of starting and ending cancels out. `--keys` also counts
requests with an API key, which is one of 1 and one of 10,000 in the file. The server reads that file again every few seconds,
so both runs then take the same time.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from run import BODY, INFER, MODELS, Failed, Program, machine, running

MODEL = "iris-xgboost"
# numbers of keys in the file; `None` without access control
WITHOUT_KEYS: tuple[int | None, ...] = (None,)
WITH_KEYS: tuple[int | None, ...] = (None, 1, 10_000)


def key(number: int) -> str:
    """A key as long as those of `mlserver keys create`."""
    return f"mls_{number:043}"


def write_keys(path: Path, count: int) -> None:
    def entry(number: int) -> dict[str, object]:
        digest = hashlib.sha256(key(number).encode()).hexdigest()
        return {"name": f"key-{number}", "hash": f"sha256:{digest}", "scopes": ["infer"]}

    path.write_text(json.dumps([entry(number) for number in range(count)]))
    path.chmod(0o600)


def ask(port: int, requests: int, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(requests):
        connection.request("POST", INFER, BODY, headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failed(f"infer was answered {response.status}: {body[:300]!r}")
    connection.close()


def instructions(executable: Path, folder: Path, requests: int, keys: int | None, seconds: float) -> tuple[int, float]:
    """Counts a run that takes at least this many seconds, and returns the seconds that it took."""
    models = folder / "models"
    shutil.copytree(MODELS / MODEL, models / MODEL)
    headers = {"content-type": "application/json"}
    # The console's sampler reads a page of the kernel that valgrind does not map.
    environment = {"MLSERVER_CONSOLE": "false"}
    if keys is not None:
        write_keys(folder / "keys.json", keys)
        environment["MLSERVER_API_KEYS_FILE"] = str(folder / "keys.json")
        # one from the middle of the file
        headers["authorization"] = f"Bearer {key(keys // 2)}"
    counted = folder / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", str(executable), "start", str(models)]
    with running(Program("counted", lambda _: command, environment=environment), folder) as server:
        began = time.monotonic()
        ask(server.port, requests, headers)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        took = time.monotonic() - began
    found = re.search(r"^(?:summary|totals): (\d+)", counted.read_text(), re.MULTILINE)
    if found is None:
        raise Failed(f"callgrind counted nothing: {server.tail()}")
    return int(found[1]), took


def per_request(executable: Path, requests: int, keys: int | None) -> float:
    counts, seconds = [], 0.0
    for count in (2 * requests, requests):
        with tempfile.TemporaryDirectory() as folder:
            counted, took = instructions(executable, Path(folder), count, keys, seconds)
        counts.append(counted)
        seconds = took if keys is not None else 0.0
    return (counts[0] - counts[1]) / requests


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the instructions of a request.")
    parser.add_argument("executables", type=Path, nargs="+", help="ours, built with `--profile dist`")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--keys", action="store_true", help="also count requests with a key")
    args = parser.parse_args()
    print(machine())
    try:
        for executable in args.executables:
            without = 0.0
            for keys in WITH_KEYS if args.keys else WITHOUT_KEYS:
                found = per_request(executable.resolve(), args.requests, keys)
                without = found if keys is None else without
                case = "" if keys is None else f", with a key of {keys:,}: {found / without - 1:+.1%}"
                print(f"{executable}: {found:.0f} instructions a request{case}", flush=True)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
