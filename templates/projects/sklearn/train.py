"""Trains a classifier of iris flowers and saves it as `model.joblib`.

    python -m pip install --requirement requirements-train.txt
    python train.py
"""

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = load_iris(return_X_y=True)
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
joblib.dump(model, "model.joblib")
print(f"accuracy on its own data: {model.score(x, y):.3f}")
