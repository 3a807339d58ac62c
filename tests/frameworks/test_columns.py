"""Columns of tables are found by name in every way to LightGBM, which takes them by position itself."""

import importlib.util
import sys

import pytest
from support import need, serve, settings

ROW = {"a": 5.1, "b b": 3.5, "c": 1.4, "d": 0.2}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if importlib.util.find_spec("mlflow.lightgbm") is None:
        need("lightgbm")
    import joblib
    import lightgbm
    import numpy
    import pandas
    from sklearn.pipeline import Pipeline

    folder = tmp_path_factory.mktemp("columns")
    random = numpy.random.default_rng(1)
    columns = pandas.DataFrame({name: random.random(80) * 4 for name in ROW})
    target = columns["a"] * 3 + (columns["b b"] > 2) * 5 - columns["c"] * columns["d"]
    model = lightgbm.LGBMRegressor(n_estimators=4, min_child_samples=3, verbose=-1).fit(columns, target)
    booster = settings(folder / "booster", "mlserver_lightgbm.LightGBMModel", "./model.txt", backend="python")
    model.booster_.save_model(booster / "model.txt")
    wrapper = settings(folder / "wrapper", "mlserver_sklearn.SKLearnModel", "./model.joblib")
    joblib.dump(model, wrapper / "model.joblib")
    pipeline = settings(folder / "pipeline", "mlserver_sklearn.SKLearnModel", "./model.joblib")
    joblib.dump(Pipeline([("model", model)]), pipeline / "model.joblib")
    if importlib.util.find_spec("mlflow.lightgbm") is not None:
        import mlflow

        mlflow.lightgbm.save_model(model.booster_, folder / "mlflow/model")
        mlflow.lightgbm.save_model(model, folder / "flavored/model")
        for name in ("mlflow", "flavored"):
            settings(folder / f"{name}-settings", "mlserver_mlflow.MLflowRuntime", f"../{name}/model", backend="python")
    started = serve(folder, sys.executable)
    started.wait_until_ready()
    started.expected = float(model.predict(pandas.DataFrame([ROW]))[0])
    started.names = [path.parent.name for path in sorted(folder.glob("*/model-settings.json"))]
    yield started
    started.stop()


def ask(server, door, model, columns):
    if door == "V1":
        return server.post(f"/v1/models/{model}:predict", {"instances": [columns]})
    inputs = [{"name": name, "shape": [1, 1], "datatype": "FP64", "data": [value]} for name, value in columns.items()]
    return server.post(f"/v2/models/{model}/infer", {"parameters": {"content_type": "pd"}, "inputs": inputs})


def prediction(answer):
    assert answer.status == 200, answer.body
    body = answer.json()
    value = body["outputs"][0]["data"] if "outputs" in body else body["predictions"]
    while isinstance(value, list):
        (value,) = value
    return value


@pytest.mark.parametrize("door", ["V1", "V2"])
def test_columns_are_found_by_name(server, door):
    written = {name.replace(" ", "_"): value for name, value in ROW.items()}
    reordered = dict(reversed(list(ROW.items())))
    renamed = dict(zip("wxyz", ROW.values()))
    for model in server.names:
        for columns in (ROW, written, reordered):
            assert prediction(ask(server, door, model, columns)) == pytest.approx(server.expected), (model, columns)
        assert ask(server, door, model, {**{n: v for n, v in ROW.items() if n != "a"}, "x": 1.0}).status == 400, model
        answer = ask(server, door, model, renamed)
        if door == "V1":
            assert answer.status == 400, model
        else:
            assert prediction(answer) == pytest.approx(server.expected), model
