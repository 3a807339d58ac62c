"""Encoders, and data frames of numbers and texts."""

import numpy as np
import pandas
from casefile import asked, blobs, rng_for
from sklearn import compose, ensemble, feature_selection, impute, linear_model, pipeline, preprocessing
from sklearn.pipeline import make_pipeline

CITIES = np.array(["Bonn", "Oslo", "Rome", "Århus", "Kyoto"])


def people(rng, rows=40, unknown=False):
    """Returns cities, grades and numbers; with `unknown`, values that are not in the training data."""
    cities = CITIES[rng.randint(5 if unknown else 4, size=rows)]
    grades = rng.randint(1, 7 if unknown else 5, size=rows)
    sizes = np.round(rng.normal(170, 10, size=rows))
    texts = np.array(["yes", "no", "?"])[rng.randint(3 if unknown else 2, size=rows)]
    frame = pandas.DataFrame({"city": cities, "grade": grades, "size": sizes, "member": texts})
    return frame.astype({"city": object, "member": object})


def write(out):
    one_hot(out)
    ordinal(out)
    if out.version >= (1, 3):
        target(out)
    frames(out)
    functions(out)


def dense(out, model):
    """Sets that results are not sparse."""
    return model.set_params(**{"sparse_output" if out.version >= (1, 2) else "sparse": False})


def one_hot(out):
    encoder = preprocessing.OneHotEncoder
    models = {
        "one_hot": encoder(),
        "one_hot_dense": dense(out, encoder()),
        "one_hot_ignore": dense(out, encoder(handle_unknown="ignore")),
        "one_hot_first": dense(out, encoder(drop="first")),
        "one_hot_binary": encoder(drop="if_binary"),
        "one_hot_chosen": dense(out, encoder(drop=["Oslo", 3, "yes"])),
        "one_hot_integers": dense(out, encoder(dtype=np.int64)),
        "one_hot_single": encoder(dtype=np.float32),
    }
    if out.version >= (1, 0):
        models["one_hot_first_ignore"] = dense(out, encoder(drop="first", handle_unknown="ignore"))
    if out.version >= (1, 1):
        models["one_hot_rare"] = dense(out, encoder(min_frequency=11, handle_unknown="infrequent_if_exist"))
        models["one_hot_most"] = dense(out, encoder(max_categories=3, handle_unknown="ignore"))
        models["one_hot_rare_first"] = dense(out, encoder(drop="first", min_frequency=0.25, handle_unknown="infrequent_if_exist"))
        models["one_hot_rare_binary"] = dense(out, encoder(drop="if_binary", max_categories=2, handle_unknown="infrequent_if_exist"))
    if out.version >= (1, 3):
        models["one_hot_rare_chosen"] = dense(out, encoder(drop=["Oslo", 3, "yes"], min_frequency=7))
    if out.version >= (1, 6):
        models["one_hot_warn"] = dense(out, encoder(min_frequency=11, handle_unknown="warn"))
    for name, model in models.items():
        rng = rng_for(name)
        frame = people(rng).drop(columns="size")
        tolerant = model.handle_unknown != "error"
        out.case(name, model.fit(frame), people(rng, rows=12, unknown=tolerant).drop(columns="size"))
    for kind in (np.int64, np.float64, np.float32, "U"):
        name = f"one_hot_{np.dtype(kind).name}"
        rng = rng_for(name)
        x = rng.randint(-2, 3, size=(40, 3))
        rows = rng.randint(-3, 4, size=(10, 3))
        x, rows = (CITIES[np.abs(x)], CITIES[np.abs(rows)]) if kind == "U" else (x.astype(kind), rows.astype(kind))
        model = encoder(handle_unknown="ignore").fit(x)
        inputs = [rows] if kind == "U" else [rows, rows.astype(np.float32), rows.astype(np.float64) + 0.5, rows.astype(np.int32)]
        out.case(name, model, inputs)
    rng = rng_for("one_hot_missing")
    x = rng.randint(3, size=(40, 2)).astype(np.float64)
    x[::5, 0] = np.nan
    out.case("one_hot_missing", encoder(handle_unknown="ignore").fit(x), np.array([[0, 1], [np.nan, 2], [2, np.nan], [7, 0]]))


def ordinal(out):
    encoder = preprocessing.OrdinalEncoder
    models = {
        "ordinal": encoder(),
        "ordinal_unknown": encoder(handle_unknown="use_encoded_value", unknown_value=-1),
        "ordinal_unknown_nan": encoder(handle_unknown="use_encoded_value", unknown_value=np.nan),
        "ordinal_integers": encoder(dtype=np.int64),
        "ordinal_chosen": encoder(categories=[["Oslo", "Bonn", "Rome", "Århus", "Lima"], [4, 3, 2, 1], ["no", "yes"]][:1] + [[1, 2, 3, 4], ["yes", "no"]]),
    }
    if out.version >= (1, 3):
        models["ordinal_rare"] = encoder(min_frequency=11, handle_unknown="use_encoded_value", unknown_value=-2)
        models["ordinal_most"] = encoder(max_categories=3)
    for name, model in models.items():
        rng = rng_for(name)
        frame = people(rng).drop(columns="size")
        tolerant = model.handle_unknown != "error"
        out.case(name, model.fit(frame), people(rng, rows=12, unknown=tolerant).drop(columns="size"))
    if out.version >= (1, 1):
        for name, model in {
            "ordinal_missing": encoder(),
            "ordinal_missing_encoded": encoder(encoded_missing_value=-5),
            "ordinal_missing_unknown": encoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-5),
        }.items():
            rng = rng_for(name)
            x = rng.randint(3, size=(40, 2)).astype(np.float64)
            x[::5, 0] = np.nan
            rows = np.array([[0, 1], [np.nan, 2], [2, 0], [1, 0]])
            out.case(name, model.fit(x), rows)


def target(out):
    for name, targets in {
        "target": np.array([0, 1]),
        "target_text": np.array(["no", "yes"]),
        "target_classes": np.array([0, 1, 2]),
        "target_numbers": np.array([0.5, 1.25, -3.0, 2.0]),
    }.items():
        if name == "target_classes" and out.version < (1, 4):
            continue
        rng = rng_for(name)
        frame = people(rng, rows=60).drop(columns="size")
        y = targets[rng.randint(len(targets), size=60)]
        more = {"target_type": "continuous"} if name == "target_numbers" else {}
        model = preprocessing.TargetEncoder(random_state=0, **more).fit(frame, y)
        out.case(name, model, people(rng, rows=12, unknown=True).drop(columns="size"))


def frames(out):
    encoder = preprocessing.OneHotEncoder(handle_unknown="ignore")
    scaler = preprocessing.StandardScaler()
    for name, model in {
        "people_sparse": compose.make_column_transformer((encoder, ["city", "member"]), (scaler, ["size"])),
        "people_dense": compose.make_column_transformer((encoder, ["city"]), remainder="passthrough", sparse_threshold=0),
        "people_scalar": compose.make_column_transformer((encoder, ["member"]), ("passthrough", ["grade", "size"])),
        "people_selector": compose.make_column_transformer(
            (encoder, compose.make_column_selector(dtype_include=object)),
            (scaler, compose.make_column_selector(dtype_include="number")),
        ),
        "people_integers": compose.make_column_transformer(("passthrough", ["grade"])),
        "people_ordinal": compose.make_column_transformer(
            (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.int32), ["city"]),
            ("passthrough", ["grade"]),
        ),
        "people_imputed": compose.make_column_transformer(
            (make_pipeline(impute.SimpleImputer(strategy="most_frequent"), encoder), ["city", "grade"]),
            (make_pipeline(impute.SimpleImputer(add_indicator=True), scaler), ["size"]),
        ),
        "people_filled": compose.make_column_transformer(
            (make_pipeline(impute.SimpleImputer(missing_values="?", strategy="constant", fill_value="none"), encoder), ["member"]),
        ),
    }.items():
        rng = rng_for(name)
        frame, rows = people(rng), people(rng, rows=10, unknown=True)
        if name == "people_dense":
            frame, rows = frame.drop(columns="member"), rows.drop(columns="member")
        y = rng.randint(2, size=len(frame))
        if name == "people_imputed":
            rows.loc[::3, "size"] = np.nan
            frame.loc[::4, "size"] = np.nan
        out.case(name, model.fit(frame, y), rows)
        whole = make_pipeline(model, linear_model.LogisticRegression(max_iter=500))
        out.case(name + "_logistic", whole.fit(frame, np.array(["a", "b"])[y]), rows)
    rng = rng_for("people_forest")
    frame, rows = people(rng), people(rng, rows=10, unknown=True)
    y = rng.randint(3, size=len(frame))
    preparation = compose.make_column_transformer((encoder, ["city", "member"]), remainder="passthrough")
    for name, last in {
        "people_forest": ensemble.RandomForestClassifier(5, max_depth=4, random_state=0),
        "people_selected": make_pipeline(feature_selection.SelectKBest(k=3), linear_model.LogisticRegression(max_iter=500)),
    }.items():
        out.case(name, make_pipeline(preparation, last).fit(frame, y), rows)


def functions(out):
    names = ["log1p", "sqrt", "square", "abs", "exp", "expm1", "log", "log2", "log10", "negative", "sign", "tanh", "rint", "cbrt"]
    for name in names:
        rng = rng_for(f"function_{name}")
        x = np.abs(blobs(rng)[0]) + 0.1
        rows = np.abs(asked(rng, x, huge=20.0)) + 0.05
        for validate in (False, True):
            model = preprocessing.FunctionTransformer(getattr(np, name), validate=validate).fit(x)
            inputs = [rows, rows.astype(np.float32), np.round(rows + 1).astype(np.int64)]
            if not validate:
                inputs.append(pandas.DataFrame(rows, columns=list("abcd")))
            out.case(f"function_{name}_{validate}", model, inputs)
    rng = rng_for("function_union")
    x = np.abs(blobs(rng)[0])
    union = pipeline.make_union(preprocessing.FunctionTransformer(np.log1p), preprocessing.FunctionTransformer())
    out.case("function_union", make_pipeline(union, preprocessing.StandardScaler()).fit(x), np.abs(asked(rng, x)))
