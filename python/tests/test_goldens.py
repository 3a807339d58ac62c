"""Compares the SDK with the answers of MLServer 1.7.1 to all cases in `goldens/cases.py`."""

import json
import pathlib
import sys
from typing import Any

import pytest
from goldens.cases import CASES, run

ANSWERS = json.loads((pathlib.Path(__file__).parent / "goldens" / "answers.json").read_text(encoding="utf-8"))

#: Numbers out of range of an integer datatype.
WARNED_BY_OLD_NUMPY = {"numpy_decode_10", "numpy_decode_11"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(*needs)) for name, (_, needs) in CASES.items()]
)
def test_case_matches_original(name: str) -> None:
    if name in WARNED_BY_OLD_NUMPY and "numpy" in sys.modules and sys.modules["numpy"].__version__.startswith("1."):
        pytest.skip("NumPy 1 warns where later ones raise")
    function, _ = CASES[name]
    answer, expected = _plain(run(function)), ANSWERS[name]
    if isinstance(answer, dict) and answer.get("raises") == "TensorDecodeError":
        # Data that does not match its datatype and shape has status 400, so that the client sees the reason.
        assert answer["status"] == 400
        assert expected["raises"] in ("ValueError", "TypeError", "OverflowError")
        return
    assert answer == expected


def test_every_golden_answer_has_a_case() -> None:
    assert sorted(ANSWERS) == sorted(CASES)


def _plain(answer: Any) -> Any:
    return json.loads(json.dumps(answer))
