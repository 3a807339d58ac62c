"""Helpers that the tests share."""

import atexit
import functools
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from archive import unpack
from conftest import BINARY, Server

GOLDENS = Path(__file__).resolve().parent / "goldens"
#: Frameworks with answers of the original.
WITH_GOLDENS = sorted(path.name for path in GOLDENS.iterdir())
#: All frameworks, or those in the environment variable.
FRAMEWORKS = os.environ.get("FRAMEWORKS", "").split() or [*WITH_GOLDENS, "mllib", "onnx", "tempo"]
#: Modules whose name is not the framework's name.
MODULES = {"alibi_explain": "alibi", "huggingface": "transformers", "mllib": "pyspark"}


@functools.cache
def golden_models(framework):
    """Returns a temporary folder with the models of a framework's goldens."""
    folder = Path(tempfile.mkdtemp(prefix=f"{framework}-goldens-"))
    atexit.register(shutil.rmtree, folder)
    unpack(GOLDENS / framework / "models.tar.gz", folder)
    return folder


def suite(framework):
    """Skips a test module, before it imports its framework, if the framework is not requested."""
    if framework not in FRAMEWORKS:
        pytest.skip(f"{framework} is not asked for", allow_module_level=True)


def need(framework):
    """Skips a test whose framework is not requested or not installed; in CI, a requested framework must be installed."""
    if framework not in FRAMEWORKS:
        pytest.skip(f"{framework} is not asked for")
    module = MODULES.get(framework, framework)
    if importlib.util.find_spec(module) is None:
        assert not os.environ.get("CI"), f"CI has no {module}; see README.md"
        pytest.skip(f"needs {module}")


def serve(folder, python, **variables):
    """Starts the server with an interpreter for its models."""
    own = {"MLSERVER_PYTHON_EXECUTABLE": str(python), "PATH": os.environ["PATH"], "HOME": str(folder)}
    own["TF_CPP_MIN_LOG_LEVEL"] = "3"
    return Server(folder, **own, **variables)


def settings(folder: Path, implementation: str, uri: str = ".", **extra) -> Path:
    """Creates the folder of a model, with the model's name, and returns it."""
    folder.mkdir(parents=True)
    text = {"name": folder.name, "implementation": implementation, "parameters": {"uri": uri, "extra": extra}}
    (folder / "model-settings.json").write_text(json.dumps(text))
    return folder


def reasons(folder: Path, python: Path, **variables) -> dict:
    """Returns why each model of a folder was not loaded."""
    server = serve(folder, python, MLSERVER_EXIT_ON_LOAD_FAILURE="false", **variables)

    def failed():
        models = server.get("/v2/health/ready").json().get("models", [])
        return models if models and not any(model["state"] == "LOADING" for model in models) else None

    try:
        return {model["name"]: model["reason"] for model in server.wait_for(failed)}
    finally:
        server.stop()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_example(tmp_path, name, probe="/v2/health/ready"):
    """Runs the commands of an example's README, and checks the answers in the README and in `cases.json`."""
    examples = Path(__file__).resolve().parents[2] / "examples"
    folder = tmp_path / name
    shutil.copytree(examples / name, folder)
    shutil.copy(examples / "cases.py", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mlserver").symlink_to(BINARY)
    readme = (folder / "README.md").read_text()
    train, call = re.findall(r"<!-- test -->\n```sh\n(.*?)```", readme, re.DOTALL)
    told = re.search(r"```json\n(.*?)\n```", readme, re.DOTALL)[1]
    cases = len(json.loads((folder / "cases.json").read_text()))
    port = free_port()
    script = f"""set -e
    {train}
    trap 'kill %1; wait' EXIT
    until curl --silent --fail http://127.0.0.1:8080{probe}; do kill -0 %1; sleep 0.1; done
    echo "answer: $({call})"
    python ../cases.py . http://127.0.0.1:8080
    """.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLSERVER_")}
    environment.update(MLSERVER_HOST="127.0.0.1", MLSERVER_HTTP_PORT=str(port))
    environment.update(MLSERVER_GRPC_PORT="0", MLSERVER_METRICS_PORT="0", MLSERVER_PYTHON_EXECUTABLE=sys.executable)
    environment["PATH"] = f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"answer: {told}\n" in run.stdout
    assert f"{cases} cases agree" in run.stdout
