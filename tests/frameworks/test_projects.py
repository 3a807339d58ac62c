"""New projects of frameworks' templates pass their own tests."""

import os
import subprocess
import sys

import pytest
from conftest import BINARY
from support import need


@pytest.mark.parametrize(("template", "framework"), [("mlflow", "mlflow"), ("huggingface", "huggingface")])
def test_init_project_passes_its_own_tests(template, framework, tmp_path):
    need(framework)
    subprocess.run([BINARY, "init", "churn", "--template", template], cwd=tmp_path, check=True, capture_output=True)
    variables = {"MLSERVER": str(BINARY), "VIRTUAL_ENV": sys.prefix, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "unittest"]
    run = subprocess.run(command, cwd=tmp_path / "churn", env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
