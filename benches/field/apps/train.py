"""Trains the models, and writes the payloads with the predictions of the libraries themselves."""

import json
import sys
from pathlib import Path

import joblib
import numpy
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
random = numpy.random.default_rng(1)
# Numbers with four digits, as they are usual in JSON.
x = random.normal(size=(5000, 20)).round(4)
target = x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) + x[:, 3:8].sum(1) / 3 + random.normal(size=5000) / 10
trees = xgboost.XGBRegressor(n_estimators=100, max_depth=6, learning_rate=0.1, random_state=1)
trees.fit(x.astype(numpy.float32), target)
trees.save_model(folder / "xgboost.json")
pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
pipeline.fit(x, numpy.digitize(target, [-0.7, 0.7]))
joblib.dump(pipeline, folder / "sklearn.joblib")

rows = random.normal(size=(1000, 20)).round(4)
booster = xgboost.Booster(model_file=folder / "xgboost.json")
expected = {
    "xgboost": booster.predict(xgboost.DMatrix(rows.astype(numpy.float32))).tolist(),
    "sklearn": joblib.load(folder / "sklearn.joblib").predict(rows).tolist(),
    "echo": rows.tolist(),
}
(folder / "payloads.json").write_text(json.dumps({"rows": rows.tolist(), "expected": expected}))
