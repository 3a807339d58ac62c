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


#: The features of the other families: numbers, whole numbers, and a category.
FEATURES = {"a": 5.0, "b": 3.0, "n": 2, "k": "y"}
NUMBERS = ("a", "b", "n")


def frames(pandas):
    import numpy

    random = numpy.random.default_rng(2)
    numbers = pandas.DataFrame({"a": random.random(90) * 6, "b": random.random(90) * 4, "n": random.integers(0, 5, 90)})
    kinds = pandas.Series(random.choice(["x", "y", "z"], 90), name="k")
    return numbers, kinds, numbers["a"] * 3 + (numbers["b"] > 2) * 5 - numbers["n"] + (kinds == "y") * 7


def trained(family, folder):
    """Saves the models of a family, and yields their names, with a function that predicts from a frame with their columns."""
    import joblib
    import pandas

    numbers, kinds, target = frames(pandas)
    mixed = numbers.assign(k=kinds)
    if family == "catboost":
        from catboost import CatBoostRegressor

        for name, rows, features in (("plain", numbers, []), ("kinds", mixed, ["k"])):
            model = CatBoostRegressor(iterations=5, verbose=False, allow_writing_files=False)
            model.fit(rows, target, cat_features=features)
            where = settings(folder / name, "mlserver_catboost.CatboostModel", "./model.cbm")
            model.save_model(str(where / "model.cbm"))
            yield name, list(rows), model.predict
    elif family == "lightgbm":
        from lightgbm import LGBMRegressor

        for backend in ("auto", "python"):
            for name, rows in (("plain", numbers), ("kinds", mixed.astype({"k": "category"}))):
                model = LGBMRegressor(n_estimators=5, min_child_samples=3, verbose=-1).fit(rows, target)
                where = settings(
                    folder / f"{name}-{backend}", "mlserver_lightgbm.LightGBMModel", "./model.txt", backend=backend
                )
                model.booster_.save_model(where / "model.txt")
                yield where.name, list(rows), lambda frame, rows=rows, model=model: model.predict(
                    frame.astype({"k": rows["k"].dtype}) if "k" in frame else frame
                )
    elif family == "xgboost":
        from xgboost import XGBRegressor

        for backend in ("auto", "python"):
            model = XGBRegressor(n_estimators=5).fit(numbers, target)
            where = settings(folder / f"plain-{backend}", "mlserver_xgboost.XGBoostModel", "./model.json", backend=backend)
            model.save_model(where / "model.json")
            yield where.name, list(numbers), model.predict
    else:
        from sklearn.compose import make_column_transformer
        from sklearn.linear_model import LinearRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        encode = make_column_transformer((OneHotEncoder(), ["k"]), remainder="passthrough")
        for backend in ("auto", "python"):
            for name, model, rows in (
                ("plain", LinearRegression(), numbers),
                ("kinds", make_pipeline(encode, LinearRegression()), mixed),
            ):
                model.fit(rows, target)
                where = settings(
                    folder / f"{name}-{backend}", "mlserver_sklearn.SKLearnModel", "./model.joblib", backend=backend
                )
                joblib.dump(model, where / "model.joblib")
                yield where.name, list(rows), model.predict


def variants(columns):
    """Yields requests: their columns with datatype and value, and whether a prediction can be right."""
    usual = {name: ("BYTES" if name == "k" else "INT64" if name == "n" else "FP64", FEATURES[name]) for name in columns}
    yield "as trained", usual, True
    yield "reversed", dict(reversed(list(usual.items()))), True
    first, second, *others = columns
    yield "two swapped", {name: usual[name] for name in (second, first, *others)}, True
    yield "whole numbers", {n: (t, v) if n == "k" else ("INT32", int(v)) for n, (t, v) in usual.items()}, True
    yield "single precision", {n: (t, v) if n == "k" else ("FP32", v) for n, (t, v) in usual.items()}, True
    yield "one renamed", {("x" if name == first else name): given for name, given in usual.items()}, False
    yield "one missing", {name: usual[name] for name in columns[1:]}, False
    yield "one too many", {**usual, "e": ("FP64", 1.0)}, True
    if "k" in usual:
        # LightGBM takes the number of a category; that of `y` is 1.
        yield "a number as category", {**usual, "k": ("INT64", 1)}, True
        yield "a fraction as category", {**usual, "k": ("FP64", 1.5)}, True
        yield "an unknown category", {**usual, "k": ("BYTES", "q")}, True


@pytest.mark.parametrize("family", ["catboost", "lightgbm", "sklearn", "xgboost"])
def test_no_family_predicts_from_the_wrong_columns(family, tmp_path):
    need(family)
    import pandas

    models = list(trained(family, tmp_path))
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        wrong = []
        for name, columns, predict in models:
            for variant, given, is_right in variants(columns):
                values = dict(FEATURES)
                if family == "catboost" and variant.endswith("category"):
                    values["k"] = given["k"][1]
                allowed = [400]
                if is_right and not isinstance(values["k"], float):  # CatBoost takes no fraction as a category
                    expected = predict(pandas.DataFrame([{each: values[each] for each in columns}]))
                    allowed.append(pytest.approx(float(expected[0]), rel=1e-5))
                # LightGBM's own tables have categories, which no request can have.
                by_name = family == "lightgbm" and variant in ("reversed", "two swapped")
                if (variant == "as trained" or by_name) and not (family == "lightgbm" and "k" in columns):
                    allowed.remove(400)
                inputs = [
                    {"name": each, "shape": [1, 1], "datatype": datatype, "data": [value]}
                    for each, (datatype, value) in given.items()
                ]
                requests = {
                    f"/v2/models/{name}/infer": {"parameters": {"content_type": "pd"}, "inputs": inputs},
                    f"/v1/models/{name}:predict": {"instances": [{each: value for each, (_, value) in given.items()}]},
                }
                for path, body in requests.items():
                    answer = server.post(path, body)
                    found = prediction(answer) if answer.status == 200 else answer.status
                    if found not in allowed:
                        wrong.append(f"{path}, {variant}: {found} instead of {allowed}: {answer.body[:200]}")
        assert not wrong, "\n".join(wrong)
    finally:
        server.stop()
