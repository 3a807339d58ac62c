"""The models as the handlers of servers without model formats of their own call them."""

import os
from pathlib import Path

import numpy

MODELS = Path(os.environ["FIELD_MODELS"])
#: Processes of each server: one for each core.
PROCESSES = int(os.environ["FIELD_PROCESSES"])


def xgboost_model():
    """The ensemble of trees. `inplace_predict` makes no DMatrix, and is the fastest way into the library."""
    import xgboost

    booster = xgboost.Booster(model_file=MODELS / "xgboost.json")
    # Processes share the cores, and threads of several processes would only wait for each other.
    booster.set_param({"nthread": 1})
    return lambda rows: booster.inplace_predict(numpy.asarray(rows, numpy.float32))


def sklearn_model():
    """The pipeline of scikit-learn."""
    import joblib

    pipeline = joblib.load(MODELS / "sklearn.joblib")
    return lambda rows: pipeline.predict(numpy.asarray(rows, numpy.float64))


def echo_model():
    """Returns its rows as an array."""
    return lambda rows: numpy.asarray(rows, numpy.float64)


LOADERS = {"xgboost": xgboost_model, "sklearn": sklearn_model, "echo": echo_model}


def split(result, counts):
    """Cuts the result of several requests into the results of each, which have so many rows."""
    found, at = [], 0
    for count in counts:
        found.append(result[at : at + count])
        at += count
    return found
