"""Trains a classifier of iris flowers and saves it with MLflow, including its signature, in the folder `model`."""

import shutil

import mlflow.sklearn
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

iris = load_iris(as_frame=True)
flowers = iris.data.rename(columns=lambda name: name.replace(" (cm)", ""))
species = iris.target.map(dict(enumerate(map(str, iris.target_names))))
model = LogisticRegression(max_iter=1000).fit(flowers, species)
signature = infer_signature(flowers, list(model.predict(flowers)))
shutil.rmtree("model", ignore_errors=True)
mlflow.sklearn.save_model(model, "model", signature=signature)
