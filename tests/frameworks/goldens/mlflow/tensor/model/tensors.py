"""Computes with one tensor, or with two that have names."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Tensors(PythonModel):
    """A model with a signature of tensors."""

    def predict(self, context, model_input, params=None):
        """Returns twice the tensor, or the sum of the named ones, and the first."""
        if isinstance(model_input, dict):
            return {"sum": model_input["a"] + model_input["b"], "a": model_input["a"]}
        return model_input * 2


set_model(Tensors())
