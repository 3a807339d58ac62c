"""New projects of frameworks' templates pass their own tests."""

import os
import subprocess
import sys

from conftest import BINARY
from support import need


def test_a_new_mlflow_project_passes_its_own_tests(tmp_path):
    need("mlflow")
    subprocess.run([BINARY, "init", "iris", "--template", "mlflow"], cwd=tmp_path, check=True, capture_output=True)
    variables = {"MLSERVER": str(BINARY), "VIRTUAL_ENV": sys.prefix, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "unittest"]
    run = subprocess.run(command, cwd=tmp_path / "iris", env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
