"""A new project of the default template passes its own tests; templates without packages are in `tests/cli/init.rs`."""

import os
import subprocess
import sys

from conftest import BINARY


def test_init_custom_project_passes_its_own_tests(tmp_path):
    subprocess.run([BINARY, "init", "churn"], cwd=tmp_path, check=True, capture_output=True)
    # The tests' interpreter has NumPy, which the project's `requirements.txt` requires.
    variables = {"MLSERVER": str(BINARY), "VIRTUAL_ENV": sys.prefix, "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "unittest"]
    run = subprocess.run(command, cwd=tmp_path / "churn", env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
