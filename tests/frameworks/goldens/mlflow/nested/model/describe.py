"""Says what it is given, in Python's words: the kind of the data, its parts, and the params."""

import numpy
import pandas
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


def described(value):
    """Returns the kinds and values in what MLflow hands over."""
    if isinstance(value, pandas.DataFrame):
        columns = [f"{name}={[described(item) for item in value[name]]}" for name in value]
        return f"frame({', '.join(columns)})"
    if isinstance(value, numpy.ndarray):
        return f"{value.dtype.kind}{value.dtype.itemsize}{list(value.shape)}{value.tolist()}"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{key}={described(item)}' for key, item in value.items())})"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(described(item) for item in value)})"
    return f"{type(value).__name__}:{value}"


class Describe(PythonModel):
    """A model that describes its input."""

    def predict(self, context, model_input, params=None):
        """Returns one text."""
        return [described(model_input) + (f" params={described(params)}" if params else "")]


set_model(Describe())
