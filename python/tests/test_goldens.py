"""Ours answers as MLServer 1.7.1 does, to everything that `goldens/cases.py` asks."""

import json
import pathlib
from typing import Any

import pytest
from goldens.cases import CASES, run

ANSWERS = json.loads((pathlib.Path(__file__).parent / "goldens" / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(*needs)) for name, (_, needs) in CASES.items()]
)
def test_answers_as_the_original(name: str) -> None:
    function, _ = CASES[name]
    assert _plain(run(function)) == ANSWERS[name]


def test_no_answer_is_left_over() -> None:
    assert sorted(ANSWERS) == sorted(CASES)


def _plain(answer: Any) -> Any:
    return json.loads(json.dumps(answer))
