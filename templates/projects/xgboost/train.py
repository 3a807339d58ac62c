"""Trains a classifier of iris flowers and saves it as `model.json`.

    python -m pip install --requirement requirements-train.txt
    python train.py
"""

import xgboost
from sklearn.datasets import load_iris

x, y = load_iris(return_X_y=True)
model = xgboost.XGBClassifier(n_estimators=10, max_depth=3, learning_rate=0.5, random_state=7, n_jobs=1).fit(x, y)
model.save_model("model.json")
print(f"accuracy on its own data: {model.score(x, y):.3f}")
