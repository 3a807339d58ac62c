"""Scalers, pipelines, and other composed estimators."""

import numpy as np
import pandas
from casefile import asked, blobs, line, rng_for
from sklearn import compose, ensemble, linear_model, model_selection, pipeline, preprocessing, tree
from sklearn.pipeline import make_pipeline


def write(out):
    scalers(out)
    pipelines(out)
    columns(out)


def scalers(out):
    models = {
        "standard": preprocessing.StandardScaler(),
        "standard_mean": preprocessing.StandardScaler(with_std=False),
        "standard_std": preprocessing.StandardScaler(with_mean=False),
        "min_max": preprocessing.MinMaxScaler(),
        "min_max_clip": preprocessing.MinMaxScaler((-1, 3), clip=True),
        "max_abs": preprocessing.MaxAbsScaler(),
        "robust": preprocessing.RobustScaler(),
        "robust_centre": preprocessing.RobustScaler(with_scaling=False),
        "normalizer_l1": preprocessing.Normalizer("l1"),
        "normalizer_l2": preprocessing.Normalizer("l2"),
        "normalizer_max": preprocessing.Normalizer("max"),
        "binarizer": preprocessing.Binarizer(threshold=0.3),
    }
    for name, model in models.items():
        rng = rng_for(name)
        x, _ = blobs(rng)
        x[:, 3] = 7.25
        x += 100.0
        rows = asked(rng, x)
        inputs = [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)]
        if name.startswith(("standard", "min", "max", "robust")):
            holes = rows.copy()
            holes[::2, 1] = np.nan
            inputs.append(holes)
        out.case(name, model.fit(x), inputs)


def pipelines(out):
    for name, model in {
        "pipeline_logistic": make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        "pipeline_forest": make_pipeline(
            preprocessing.MinMaxScaler(), ensemble.RandomForestClassifier(5, max_depth=3, random_state=0)
        ),
        "pipeline_passthrough": pipeline.Pipeline([("a", "passthrough"), ("b", tree.DecisionTreeClassifier(max_depth=2))]),
        "pipeline_nested": make_pipeline(
            make_pipeline(preprocessing.MaxAbsScaler(), preprocessing.Normalizer()), linear_model.RidgeClassifier()
        ),
        "search": model_selection.GridSearchCV(
            make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
            {"logisticregression__C": [0.1, 1.0]},
            cv=2,
        ),
        "random_search": model_selection.RandomizedSearchCV(
            linear_model.LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, n_iter=2, cv=2, random_state=0
        ),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng)
        rows = asked(rng, x)
        # rows of single precision are normalized in it, and the order of operations differs by version
        single = name == "pipeline_nested"
        out.case(name, model.fit(x, np.array(["x", "y", "z"])[y]), [rows, rows.astype(np.float32)], single=single)
    rng = rng_for("pipeline_transform")
    x, y = blobs(rng)
    scaler = make_pipeline(preprocessing.StandardScaler(), preprocessing.Normalizer())
    out.case("pipeline_transform", scaler.fit(x), asked(rng, x))
    ending = pipeline.Pipeline([("a", preprocessing.StandardScaler()), ("b", "passthrough")])
    out.case("pipeline_ends_in_nothing", ending.fit(x), asked(rng, x))
    union = pipeline.FeatureUnion(
        [("a", preprocessing.StandardScaler()), ("b", preprocessing.MinMaxScaler()), ("c", "drop")],
        transformer_weights={"b": 2.5},
    )
    rows = asked(rng, x)
    out.case("union", union.fit(x), [rows, rows.astype(np.float32)])
    if out.version >= (1, 1):
        union = pipeline.FeatureUnion([("a", preprocessing.StandardScaler()), ("b", "passthrough")])
        out.case("union_passthrough", union.fit(x), rows)
    rng = rng_for("ransac")
    x, y = line(rng)
    out.case("ransac", linear_model.RANSACRegressor(random_state=0).fit(x, y), asked(rng, x))


def columns(out):
    rng = rng_for("columns")
    x, y = blobs(rng, columns=5)
    rows = asked(rng, x)
    standard, min_max = preprocessing.StandardScaler, preprocessing.MinMaxScaler
    for name, transformers, remainder in [
        ("columns_places", [("a", standard(), [0, 2]), ("b", min_max(), [-1])], "drop"),
        ("columns_remainder", [("a", standard(), [3, 1])], "passthrough"),
        ("columns_transformed_remainder", [("a", standard(), [3])], min_max()),
        ("columns_mask", [("a", standard(), [True, False, True, False, False])], "drop"),
        ("columns_slice", [("a", standard(), slice(1, 4)), ("b", "passthrough", [0]), ("c", "drop", [4])], "drop"),
        ("columns_none", [("a", standard(), []), ("b", min_max(), [0])], "drop"),
    ]:
        model = compose.ColumnTransformer(transformers, remainder=remainder)
        out.case(name, model.fit(x), [rows, rows.astype(np.float32)])
    names = ["one", "two", "three", "four", "five"]
    frame, asked_frame = pandas.DataFrame(x, columns=names), pandas.DataFrame(rows, columns=names)
    mixed = asked_frame.astype({"one": "float32", "four": "int64"})
    for name, transformers, remainder in [
        ("frame_names", [("a", standard(), ["four", "one"]), ("b", min_max(), ["two"])], "drop"),
        ("frame_remainder", [("a", standard(), ["two"])], "passthrough"),
        ("frame_places", [("a", standard(), [1, 2])], "passthrough"),
    ]:
        model = make_pipeline(compose.ColumnTransformer(transformers, remainder=remainder), linear_model.LogisticRegression())
        inputs = [asked_frame, mixed]
        if out.version >= (1, 0) and name == "frame_names":
            inputs.append(asked_frame[["five", "four", "three", "two", "one"]].assign(six=1.5))
        out.case(name, model.fit(frame, y), inputs)
