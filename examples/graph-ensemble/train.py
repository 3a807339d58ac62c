"""Trains the three models, and writes a request with the answer of the real libraries.

Run from anywhere; the same pinned versions give the same files:

    python -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python train.py
"""

import json
from pathlib import Path

import joblib
import lightgbm
import numpy as np
import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

HERE = Path(__file__).resolve().parent
SEED = 7
FEATURES = ["mean radius", "mean texture", "mean smoothness", "mean concavity", "mean symmetry"]
# Those of `verdict/model-settings.json`.
WEIGHTS = [0.25, 0.25, 0.5]
LABELS = ["malignant", "benign"]


def main() -> None:
    data = load_breast_cancer()
    columns = [list(data.feature_names).index(name) for name in FEATURES]
    x_train, x_test, y_train, y_test = train_test_split(
        data.data[:, columns], data.target, test_size=0.2, random_state=SEED, stratify=data.target
    )

    # `reg:logistic` makes `predict` return probabilities; a classifier's returns classes.
    boosted = xgboost.XGBRegressor(
        objective="reg:logistic", n_estimators=8, max_depth=3, learning_rate=0.4, random_state=SEED, n_jobs=1
    )
    boosted.fit(x_train, y_train)
    boosted.save_model(HERE / "xgboost-tumor" / "model.json")

    leaves = lightgbm.train(
        {
            "objective": "binary",
            "num_leaves": 6,
            "learning_rate": 0.3,
            "seed": SEED,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbose": -1,
        },
        lightgbm.Dataset(x_train, y_train),
        num_boost_round=10,
    )
    leaves.save_model(HERE / "lightgbm-tumor" / "model.bst")

    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(x_train, y_train)
    joblib.dump(linear, HERE / "sklearn-tumor" / "model.joblib", compress=3)

    def benign(rows: np.ndarray) -> np.ndarray:
        each = [boosted.predict(rows), leaves.predict(rows), linear.predict_proba(rows)[:, 1]]
        return sum(weight * probabilities.astype(float) for weight, probabilities in zip(WEIGHTS, each))

    combined = benign(x_test)
    print(f"test accuracy {np.mean((combined >= 0.5) == y_test):.3f}")
    # The most and the least certain one, and one between them.
    rows = x_test[np.argsort(combined)[[-1, 0, len(combined) // 2]]]
    request = {
        "inputs": [
            {"name": "measurements", "shape": list(rows.shape), "datatype": "FP64", "data": rows.ravel().tolist()}
        ]
    }
    probabilities = benign(rows)
    answer = {
        "outputs": [
            {"name": "benign", "shape": [3, 1], "datatype": "FP64", "data": probabilities.tolist()},
            {
                "name": "label",
                "shape": [3, 1],
                "datatype": "BYTES",
                "data": [LABELS[int(value >= 0.5)] for value in probabilities],
            },
        ]
    }
    (HERE / "request.json").write_text(json.dumps(request) + "\n")
    (HERE / "answer.json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
