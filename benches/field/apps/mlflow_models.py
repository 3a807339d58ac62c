"""Saves the models in the format of MLflow."""

import sys
from pathlib import Path

import joblib
import mlflow
import xgboost

folder = Path(sys.argv[1])


class Echo(mlflow.pyfunc.PythonModel):
    """Returns its rows."""

    def predict(self, context, model_input, params=None):
        """Returns the rows of a request."""
        return model_input


trees = xgboost.XGBRegressor()
trees.load_model(folder / "xgboost.json")
mlflow.xgboost.save_model(trees, folder / "mlflow-xgboost", model_format="json")
mlflow.sklearn.save_model(joblib.load(folder / "sklearn.joblib"), folder / "mlflow-sklearn")
mlflow.pyfunc.save_model(folder / "mlflow-echo", python_model=Echo())
