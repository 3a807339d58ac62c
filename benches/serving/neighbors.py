"""Measures what models suffer from a neighbor in the same worker that crashes, or that loads slowly.

    cargo build --profile dist
    python3.11 benches/serving/neighbors.py target/dist/mlserver

Uses the models of `tests/fixtures/workers`, default settings, and the `python3` in PATH. Several executables are measured in turn.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from run import Failed, Program, machine, running

MODELS = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "workers" / "models.py"
#: The clients of the neighbors `n`, a coroutine, and `p`, a plain function; each request takes 5 ms.
NEIGHBORS = "nnpp"


def infer(connection: http.client.HTTPConnection, model: str, value: int | str) -> int:
    """Sends a request with one value, and returns the status."""
    datatype = "BYTES" if isinstance(value, str) else "INT64"
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": datatype, "data": [value]}]})
    return post(connection, f"/v2/models/{model}/infer", body)


def post(connection: http.client.HTTPConnection, path: str, body: str) -> int:
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


class Load:
    """Clients of the neighbors, one request after the other, in a `with` block."""

    def __init__(self, port: int) -> None:
        self.answers: list[tuple[int, float]] = []
        self._stop = False
        self._threads = [threading.Thread(target=self._ask, args=(port, model)) for model in NEIGHBORS]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join()

    def _ask(self, port: int, model: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not self._stop:
            began = time.perf_counter()
            status = infer(connection, model, 5)
            self.answers.append((status, time.perf_counter() - began))


def measure(executable: Path, folder: Path, seconds: float) -> None:
    """Prints both figures of an executable."""
    models = folder / "models"
    for name, kind in {"n": "Coroutine", "p": "Plain", "crashes": "Trouble", "slow": "LoadsSlowly"}.items():
        (models / name).mkdir(parents=True)
        shutil.copy2(MODELS, models / name)
        (models / name / "model-settings.json").write_text(json.dumps({"name": name, "implementation": f"models.{kind}"}))
    with running(Program("ours", lambda _port: [str(executable.resolve()), "start", str(models)]), folder) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        crashes, end = 0, time.monotonic() + seconds
        with Load(server.port) as load:
            while time.monotonic() < end:
                infer(connection, "crashes", "exit")
                crashes += 1
                time.sleep(0.3)
        answered = sum(status == 200 for status, _ in load.answers)
        slowest = max(took for _, took in load.answers)
        print(
            f"{executable}: {crashes} crashes in {seconds:g} s: {answered} of {len(load.answers)} requests to neighbors were "
            f"answered, {100 * answered / len(load.answers):.3f} %, the slowest after {slowest:.2f} s"
        )
        post(connection, "/v2/repository/models/slow/unload", "{}")
        with Load(server.port) as load:
            if post(connection, "/v2/repository/models/slow/load", "{}") != 200:
                raise Failed("the model that loads slowly could not be loaded")
        print(f"{executable}: slowest request to neighbors during a load of 2 s: {1000 * max(load.answers, key=lambda one: one[1])[1]:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what models suffer from a neighbor.")
    parser.add_argument("executables", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    print(machine())
    try:
        for executable in args.executables:
            with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
                measure(executable, Path(name), args.seconds)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
