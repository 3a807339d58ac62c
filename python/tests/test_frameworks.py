"""Helpers of the framework runtimes."""

import logging
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Iterator, List

import pytest
from mlserver import _frameworks, _interpreter
from mlserver._frameworks import arranged, inference_errors
from mlserver.errors import InferenceError
from mlserver.logging import logger


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[logging.LogRecord]]:
    found: List[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    monkeypatch.setattr(_frameworks, "_rejections", set())
    collector = Collector()
    level = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(collector)
    logger.setLevel(level)


def _reject(error: Exception) -> None:
    with pytest.raises(InferenceError), inference_errors():
        raise error


def _reject_elsewhere(error: Exception) -> None:
    with pytest.raises(InferenceError), inference_errors():
        raise error


def test_first_rejection_of_each_place_is_a_warning(records: List[logging.LogRecord]):
    for reject in (_reject, _reject, _reject_elsewhere):
        reject(ValueError("3 features expected"))
    _reject(KeyError("encoder"))
    levels = [record.levelname for record in records]
    assert levels == ["WARNING", "DEBUG", "WARNING", "WARNING"]
    assert all(record.exc_info is not None for record in records)


def test_warnings_about_rejections_are_bounded(records: List[logging.LogRecord]):
    _frameworks._rejections.update((ValueError, "file", line) for line in range(_frameworks._MAX_REJECTIONS))
    _reject(ValueError("one too many"))
    assert [record.levelname for record in records] == ["DEBUG"]
    assert len(_frameworks._rejections) == _frameworks._MAX_REJECTIONS


def test_missing_package_is_installed_with_this_python():
    expected = f"install it there: {sys.executable} -m pip install NumPy"
    assert _interpreter.how_to_install("NumPy") == expected


def test_missing_package_of_a_managed_python_needs_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert _interpreter.how_to_install("NumPy").startswith("install it there")
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    advice = _interpreter.how_to_install("NumPy")
    for step in ["python3 -m venv .venv", ". .venv/bin/activate", "python -m pip install NumPy", "start the server again"]:
        assert step in advice


DEBIAN = Path("/usr/bin/python3")


@pytest.mark.skipif(not list(Path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED")), reason="no Python that the system manages")
def test_python_of_debian_is_recognized():
    code = "from mlserver._interpreter import how_to_install; print(how_to_install('NumPy'))"
    ran = subprocess.run([DEBIAN, "-c", code], cwd=Path(_interpreter.__file__).parents[1], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "the system manages it" in ran.stdout


@pytest.mark.needs("pandas")
def test_columns_are_arranged_by_name(records: List[logging.LogRecord]):
    import pandas

    class Model:
        name = "m"

    def values(columns: List[object], named: bool, features: List[str]) -> List[int]:
        frame = pandas.DataFrame([list(range(len(columns)))], columns=columns)
        return arranged(model, frame, features, named).iloc[0].tolist()

    model = Model()
    for named in (False, True):
        assert values(["a", "b c"], named, ["a", "b_c"]) == [0, 1]
        assert values(["b c", "a"], named, ["a", "b_c"]) == [1, 0]
        assert values(["x", "y"], named, ["Column_0", "Column_1"]) == [0, 1]
        assert values([0, 1], named, ["a", "b"]) == [0, 1], "without names"
        assert values(["a"], named, ["a", "b"]) == [0], "the library rejects it"
        with pytest.raises(InferenceError, match=r"column 1 is `x`, which this model does not have: .* `a` is missing"):
            values(["b", "x"], named, ["a", "b"])
    with pytest.raises(InferenceError, match="column 0 is `x`"):
        values(["x", "y"], True, ["a", "b"])
    for _ in range(2):
        assert values(["x", "y"], False, ["a", "b"]) == [0, 1]
    assert len([record for record in records if "are taken in their order" in record.getMessage()]) == 1
