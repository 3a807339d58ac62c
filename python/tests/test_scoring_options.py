"""The arguments that scorers and jobs of engines share."""

from typing import Any

import pytest
from mlserver._scoring.options import JobOptions, ScorerOptions
from mlserver.errors import InferenceError


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        (ScorerOptions, {"threads": 257}, "threads is 257"),
        (ScorerOptions, {"outputs": "predict"}, "outputs is `predict`"),
        (JobOptions, {"columns": "age"}, "columns is `age`"),
        (JobOptions, {"errors": "drop"}, "errors is `drop`"),
        (JobOptions, {"batch_bytes": 0}, "batch_bytes is 0"),
    ],
)
def test_invalid_arguments_are_rejected(options: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**arguments)


def test_kept_columns_exist_once() -> None:
    names = ["id", "age", "age"]
    assert JobOptions(keep="id").kept(names) == ["id"]
    assert JobOptions(keep=("id",)).kept(names) == ["id"]
    with pytest.raises(InferenceError, match="there are two columns `age`"):
        JobOptions().kept(names)
    with pytest.raises(InferenceError, match="there is no column `name`"):
        JobOptions(keep=["name"]).kept(names)


def test_outputs_have_no_name_of_a_column() -> None:
    assert JobOptions(errors="column").added(["predict"], ["id"]) == ["predict", "mlserver_error"]
    with pytest.raises(InferenceError, match="the output `predict` of the model has the name of a column"):
        JobOptions().added(["predict"], ["predict"])
    with pytest.raises(InferenceError, match="the output `mlserver_error`"):
        JobOptions(errors="column").added(["predict"], ["mlserver_error"])
