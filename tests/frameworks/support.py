"""What the tests share."""

import importlib.util
import os
from pathlib import Path

import pytest
from conftest import Server

GOLDENS = Path(__file__).resolve().parent / "goldens"
#: All of them, or those that the variable names.
FRAMEWORKS = os.environ.get("FRAMEWORKS", "").split() or sorted(path.name for path in GOLDENS.iterdir())


def need(framework):
    """Skips a test whose framework is not wanted or not there; in CI, what is wanted has to be there."""
    if framework not in FRAMEWORKS:
        pytest.skip(f"{framework} is not asked for")
    if importlib.util.find_spec(framework) is None:
        assert not os.environ.get("CI"), f"CI has no {framework}; see requirements.txt"
        pytest.skip(f"needs {framework}")


def serve(folder, python, **variables):
    """Starts the server with an interpreter for its models."""
    own = {"MLSERVER_PYTHON_EXECUTABLE": str(python), "PATH": os.environ["PATH"], "HOME": str(folder)}
    return Server(folder, **own, **variables)
