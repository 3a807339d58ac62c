"""The models as the handlers of servers without model formats of their own call them."""

import os
from pathlib import Path

import numpy

MODELS = Path(os.environ["FIELD_MODELS"])
#: Processes of each server: one for each core.
PROCESSES = int(os.environ["FIELD_PROCESSES"])


class XGBoost:
    """The ensemble of trees. `inplace_predict` creates no DMatrix, and is the fastest way into the library."""

    def __init__(self):
        import xgboost

        self.booster = xgboost.Booster(model_file=MODELS / "xgboost.json")
        # One thread for each process: there is a process for each core.
        self.booster.set_param({"nthread": 1})

    def __call__(self, rows):
        """Predicts rows."""
        return self.booster.inplace_predict(numpy.asarray(rows, numpy.float32))


class Sklearn:
    """The pipeline of scikit-learn."""

    def __init__(self):
        import joblib

        self.pipeline = joblib.load(MODELS / "sklearn.joblib")

    def __call__(self, rows):
        """Predicts rows."""
        return self.pipeline.predict(numpy.asarray(rows, numpy.float64))


class Echo:
    """Returns its rows as an array."""

    def __call__(self, rows):
        """Predicts rows."""
        return numpy.asarray(rows, numpy.float64)


LOADERS = {"xgboost": XGBoost, "sklearn": Sklearn, "echo": Echo}


def split(result, counts):
    """Cuts the result of several requests into the results of each, which have so many rows."""
    found, at = [], 0
    for count in counts:
        found.append(result[at : at + count])
        at += count
    return found
