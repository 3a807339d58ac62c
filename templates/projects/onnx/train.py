"""Trains a classifier of iris flowers and exports it as `model.onnx`.

    python -m pip install --requirement requirements-train.txt
    python train.py
"""

from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = load_iris(return_X_y=True)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
# The name of the input, with rows of any number, and probabilities as a matrix instead of a list of maps.
inputs = [("measurements", FloatTensorType([None, 4]))]
exported = convert_sklearn(model, initial_types=inputs, options={"zipmap": False})
with open("model.onnx", "wb") as file:
    file.write(exported.SerializeToString())
print(f"accuracy on its own data: {model.score(x, y):.3f}")
