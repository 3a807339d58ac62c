"""Trains a tree model that predicts the width of petals, and saves an explainer of it."""

import joblib
from alibi.explainers import TreeShap
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingRegressor

rows, _ = load_iris(return_X_y=True)
model = GradientBoostingRegressor(n_estimators=5, max_depth=2, random_state=1).fit(rows[:, :3], rows[:, 3])
joblib.dump(model, "model.joblib")
explainer = TreeShap(model, feature_names=["sepal length", "sepal width", "petal length"], task="regression")
explainer.fit()
explainer.save("explainer")
print("wrote model.joblib and explainer")
