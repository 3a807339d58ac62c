"""Trains the two quickstart models and writes their sample requests.

Run from anywhere; the same pinned versions give the same files:

    python -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python train.py
"""

import json
from pathlib import Path

import lightgbm
import numpy as np
import xgboost
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 7


def train_iris() -> None:
    """Three classes of iris flowers by four measurements in centimeters."""
    data = load_iris()
    x = data.data.astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, data.target, test_size=0.2, random_state=SEED, stratify=data.target
    )
    model = xgboost.XGBClassifier(
        objective="multi:softprob",
        n_estimators=40,
        max_depth=3,
        learning_rate=0.2,
        subsample=0.9,
        random_state=SEED,
        n_jobs=1,
    )
    model.fit(x_train, y_train)
    model.save_model(HERE / "iris-xgboost" / "model.json")
    print(f"iris-xgboost: test accuracy {model.score(x_test, y_test):.3f}")
    write_request("iris-request.json", "input-0", "FP32", x_test[:3], ["predict", "predict_proba"])


def train_breast_cancer() -> None:
    """Probability that a tumor is benign, by thirty measurements of its cells."""
    data = load_breast_cancer()
    x_train, x_test, y_train, y_test = train_test_split(
        data.data, data.target, test_size=0.2, random_state=SEED, stratify=data.target
    )
    params = {
        "objective": "binary",
        "num_leaves": 15,
        "min_data_in_leaf": 10,
        "learning_rate": 0.1,
        "seed": SEED,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    names = [name.replace(" ", "_") for name in data.feature_names]
    booster = lightgbm.train(
        params,
        lightgbm.Dataset(x_train, y_train, feature_name=names),
        num_boost_round=60,
    )
    booster.save_model(HERE / "breast-cancer-lightgbm" / "model.bst")
    right = (booster.predict(x_test) > 0.5) == y_test
    print(f"breast-cancer-lightgbm: test accuracy {right.mean():.3f}")
    write_request("breast-cancer-request.json", "input-0", "FP64", x_test[:2], ["predict"])


def write_request(file: str, name: str, datatype: str, rows: np.ndarray, outputs: list[str]) -> None:
    """Writes a V2 inference request with `rows` as its only input tensor."""
    body = {
        "inputs": [
            {
                "name": name,
                "shape": list(rows.shape),
                "datatype": datatype,
                # str() of a NumPy scalar is its shortest round-trip form
                "data": [float(str(value)) for value in rows.ravel()],
            }
        ],
        "outputs": [{"name": output} for output in outputs],
    }
    (HERE / file).write_text(json.dumps(body) + "\n")


if __name__ == "__main__":
    train_iris()
    train_breast_cancer()
