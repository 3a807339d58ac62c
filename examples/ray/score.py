"""Adds the predictions of a model to a dataset of Ray.

    pip install mlserver 'ray[data]'
    python examples/ray/score.py
"""

import pathlib

import mlserver.ray
import ray

MODEL = pathlib.Path(__file__).resolve().parents[1] / "quickstart" / "iris-xgboost"
FEATURES = ["sepal length", "sepal width", "petal length", "petal width"]
FLOWERS = [
    {"id": 1, "sepal length": 5.1, "sepal width": 3.5, "petal length": 1.4, "petal width": 0.2},
    {"id": 2, "sepal length": 6.7, "sepal width": 3.0, "petal length": 5.2, "petal width": 2.3},
]

ray.init("local", num_cpus=2, include_dashboard=False, logging_level="error")
flowers = ray.data.from_items(FLOWERS)

# A column for each output of the model. Each of the actors, of which there is one here, has a process that evaluates it.
# The model has no names of features, so `columns` names them in their order.
outputs = ["predict", "predict_proba"]
scored = mlserver.ray.score(flowers, MODEL, columns=FEATURES, outputs=outputs, keep=["id"], concurrency=1)
for row in sorted(scored.take_all(), key=lambda row: row["id"]):
    probabilities = [round(float(probability), 3) for probability in row["predict_proba"]]
    print(f"flower {row['id']}: class {row['predict']}, {probabilities}")
ray.shutdown()
