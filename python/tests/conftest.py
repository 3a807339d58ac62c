"""Shared hooks and fixtures of the tests."""

import importlib.util
import os
from typing import Any

import pytest

#: Set if the tests run without any library on purpose. Otherwise CI fails instead of skipping tests.
STDLIB_ONLY = "MLSERVER_TEST_STDLIB_ONLY"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*names): libraries or environment variables without which a test cannot run"
    )


def pytest_runtest_setup(item: Any) -> None:
    wanted = [library for marker in item.iter_markers("needs") for library in marker.args]
    missing = [name for name in wanted if not _is_there(name)]
    if not missing:
        return
    if os.environ.get("CI") and not os.environ.get(STDLIB_ONLY):
        pytest.fail(f"CI must have {', '.join(missing)}; see .ci/run")
    pytest.skip(f"needs {', '.join(missing)}")


def _is_there(name: str) -> bool:
    if name.isupper():
        return bool(os.environ.get(name))
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Removes settings in the environment of the developer."""
    for name in list(os.environ):
        if name.upper().startswith("MLSERVER_") and name != STDLIB_ONLY:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
