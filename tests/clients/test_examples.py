"""Every example of a runtime in Python answers as on MLServer 1.7.1, whose answers are in its `cases.json`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Server

#: Examples that need a framework are tested in `tests/frameworks`.
OF_FRAMEWORKS = {"alibi-detect", "alibi-explain", "huggingface", "mlflow", "mllib"}
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/cases.json") if path.parent.name not in OF_FRAMEWORKS)


def test_examples_exist():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_answers_match_the_recorded_ones(example: Path, tmp_path: Path):
    folder = tmp_path / example.name
    shutil.copytree(example, folder)
    assert json.loads((folder / "cases.json").read_text())
    variables = {"MLSERVER_METRICS_ENDPOINT": "/metrics", "MLSERVER_METRICS_PORT": "0"}
    # The tests' interpreter has the packages that the examples import.
    server = Server(folder, VIRTUAL_ENV=sys.prefix, PATH=os.environ["PATH"], **variables)
    try:
        server.wait_until_ready()
        metrics = re.search(r"Metrics server running on (http://\S+)", server.log.read_text())[1]
        command = [sys.executable, ROOT / "examples" / "cases.py", folder, server.url, "--metrics-url", metrics]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stdout + run.stderr + server.log.read_text()
    finally:
        server.stop()
