"""Shared hooks and fixtures of the tests."""

import importlib.util
import os
from typing import Any

import pytest

#: Set if the tests run without any library on purpose. Otherwise CI fails instead of skipping tests.
STDLIB_ONLY = "MLSERVER_TEST_STDLIB_ONLY"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*libraries): libraries without which a test cannot run")


def pytest_runtest_setup(item: Any) -> None:
    wanted = [library for marker in item.iter_markers("needs") for library in marker.args]
    missing = [library for library in wanted if not _is_installed(library)]
    if not missing:
        return
    if os.environ.get("CI") and not os.environ.get(STDLIB_ONLY):
        pytest.fail(f"CI has no {', '.join(missing)}; see python/tests/requirements.txt")
    pytest.skip(f"needs {', '.join(missing)}")


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Removes settings in the environment of the developer."""
    for name in list(os.environ):
        if name.upper().startswith("MLSERVER_") and name != STDLIB_ONLY:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
