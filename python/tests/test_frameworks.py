"""Helpers of the framework runtimes."""

import logging
from typing import Iterator, List

import pytest
from mlserver import _frameworks
from mlserver._frameworks import inference_errors
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
