"""Trains the models of a runtime, sends the cases to MLServer 1.7.1, and writes models and answers to `goldens/`.

python tests/frameworks/generate.py sklearn            # in an environment as the README says
python tests/frameworks/generate.py sklearn --answers  # keeps the models
"""

import argparse
import importlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import nullcontext
from typing import Any, Callable, Dict, List

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "examples"), str(HERE.parent / "goldens")]

from archive import pack, unpack
from cases import ask

PATIENCE = 300


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def record(folder: pathlib.Path, cases: List[Dict[str, Any]], serving: Callable[..., Any]) -> None:
    """Sends the cases to the original, within the context `serving`, and adds its answers to them."""
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        models = pathlib.Path(scratch) / "models"
        shutil.copytree(folder, models)
        environment = {
            **os.environ,
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": str(port),
            "MLSERVER_GRPC_PORT": str(free_port()),
            "MLSERVER_METRICS_PORT": str(free_port()),
            "MLSERVER_PARALLEL_WORKERS": "0",
            "MLSERVER_LOAD_MODELS_AT_STARTUP": "false",
            "MLSERVER_DEBUG": "false",
        }
        start = "import sys; from mlserver.cli import main; sys.argv = ['mlserver', 'start', sys.argv[1]]; main()"
        with serving(models), open(pathlib.Path(scratch) / "log", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", start, "."], cwd=models, env=environment, stdout=log, stderr=log
            )
            try:
                url = f"http://127.0.0.1:{port}"
                wait(url, process)
                # One by one: at startup, a model that cannot be loaded would stop the server.
                for settings in sorted(models.glob("*/model-settings.json")):
                    load(url, settings.parent.name)
                for case in cases:
                    case["answer"] = ask(url, case)
                    case["answer"].pop("headers", None)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
                log.seek(0)
                (pathlib.Path(tempfile.gettempdir()) / "original.log").write_text(log.read(), encoding="utf-8")


def wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/v2/health/live", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the original did not start")


def load(url: str, name: str) -> None:
    answer = ask(url, {"method": "POST", "path": f"/v2/repository/models/{name}/load"})
    if answer["status"] != 200:
        print(f"the original cannot load {name}: {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtime")
    parser.add_argument("--answers", action="store_true", help="keep the models that are there")
    options = parser.parse_args()
    module = importlib.import_module(f"{options.runtime}_cases")
    folder = HERE / "goldens" / options.runtime
    archive = folder / "models.tar.gz"
    cases: List[Dict[str, Any]] = module.CASES
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names), "two cases have the same name"
    with tempfile.TemporaryDirectory() as scratch:
        models = pathlib.Path(scratch) / options.runtime
        if options.answers:
            unpack(archive, models)
        else:
            module.models(models)
            folder.mkdir(parents=True, exist_ok=True)
            pack(models, archive)
        record(models, cases, getattr(module, "serving", nullcontext))
    lines = ",\n".join(f" {json.dumps(case)}" for case in cases)
    (folder / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{options.runtime}: {len(cases)} cases")


if __name__ == "__main__":
    main()
