"""The server under test: the compiled binary, on free ports of this machine, with models that need no Python."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MLSERVER_BIN", REPOSITORY / "target" / "debug" / "mlserver")).resolve()
IRIS = REPOSITORY / "examples" / "quickstart" / "iris-xgboost"
# Nothing that passes waits this long, in seconds.
PATIENCE = 30.0


@dataclass
class Server:
    """A running server; `http` is its address as clients take it."""

    process: subprocess.Popen[bytes]
    log: Path
    http: str
    models: Path


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """Waits for a line of the log and returns the first group of the pattern."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        text = log.read_text()
        found = re.search(pattern, text)
        if found:
            return found.group(1)
        assert process.poll() is None, f"the server ended with {process.returncode}:\n{text}"
        time.sleep(0.01)
    raise AssertionError(f"no `{pattern}` in the log:\n{log.read_text()}")


def echo(models: Path, name: str) -> None:
    """Adds a model that answers with its inputs."""
    folder = models / name
    folder.mkdir(parents=True)
    settings = {"name": name, "implementation": "mlserver_identity.IdentityModel"}
    (folder / "model-settings.json").write_text(json.dumps(settings))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory):
    assert BINARY.is_file(), f"there is no {BINARY}: run `cargo build`, or set MLSERVER_BIN"
    folder = tmp_path_factory.mktemp("server")
    models = folder / "models"
    echo(models, "echo")
    shutil.copytree(IRIS, models / IRIS.name)
    # The client reads names where JSON has no number.
    (models / "settings.json").write_text(json.dumps({"non_finite_json": "string"}))
    log = folder / "log"
    environment = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": "0",
        "MLSERVER_GRPC_PORT": "0",
        "MLSERVER_METRICS_PORT": "0",
    }
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [BINARY, "start", models], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, cwd=folder
        )
    try:
        http = wait_for(log, r"HTTP server running on http://([0-9.:]+)", process)
        wait_for(log, r"(Loaded model 'echo' successfully)", process)
        wait_for(log, r"(Loaded model 'iris-xgboost' successfully)", process)
        yield Server(process, log, http, models)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0, log.read_text()
