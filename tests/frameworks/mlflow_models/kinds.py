"""Returns what its param `kind` asks for: every kind of value that a model may return."""

import datetime
import time

import numpy
import pandas
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

NUMBERS = [0.5, 2.0]
ANSWERS = {
    "array": numpy.array(NUMBERS),
    "integers": numpy.array([[1, 2], [3, 4]], dtype="int32"),
    "scalar": numpy.float64(0.5),
    "number": 0.5,
    "word": "one",
    "numbers": NUMBERS,
    "booleans": [True, False],
    "rows": [[1, 2], [3, 4]],
    "words": ["one", "zwölf"],
    "bytes": [b"one"],
    "times": [datetime.datetime(2020, 1, 2, 3, 4, 5)],
    "objects": [{"a": 1}, {"a": 2, "b": "two"}],
    "empty": [],
    "series": pandas.Series(NUMBERS, name="own"),
    "frame": pandas.DataFrame({"double": NUMBERS, "whole": [1, 2], "word": ["a", "b"], "hole": [0.5, float("nan")]}),
    "dict": {"one": numpy.array(NUMBERS), "two": numpy.array([[1], [2]])},
    "lists": {"numbers": NUMBERS, "words": ["a", "b"], "one": 1.5},
    "nested": {"choices": [{"text": "hi", "index": 0}], "usage": {"tokens": 3}},
    "unknown": object(),
}


class Kinds(PythonModel):
    """A model that returns anything, and raises anything."""

    def predict(self, context, model_input, params=None):
        """Returns an answer by its name, or raises."""
        kind = (params or {}).get("kind", "array")
        if kind == "error":
            raise RuntimeError("the secret of the model")
        if kind == "value error":
            raise ValueError("this value is wrong")
        if kind == "slow":
            time.sleep(6)
        return ANSWERS.get(kind)


set_model(Kinds())
