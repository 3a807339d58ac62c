"""Multiplies a column by params."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Scale(PythonModel):
    """A model with params."""

    def predict(self, context, model_input, params=None):
        """Returns `x * scale + sum(adds)`."""
        return model_input["x"].to_numpy() * params["scale"] + sum(params["adds"])


set_model(Scale())
