"""Models of XGBoost, and the requests to them; all are served in Python, and some only there."""

import pathlib

from casefile import answered, infer, metadata, refused, settings, tensor

IMPLEMENTATION = "mlserver_xgboost.XGBoostModel"


def models(folder: pathlib.Path) -> None:
    """Trains and saves the models."""
    import numpy
    import pandas
    import xgboost
    from sklearn.datasets import load_iris

    rows, labels = load_iris(return_X_y=True)
    small = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1}

    def write(name, model, file="model.json", uri=".", backend="python"):
        model.save_model(settings(folder / name, IMPLEMENTATION, uri, backend=backend) / file)

    write("classes", xgboost.XGBClassifier(**small).fit(rows, labels))
    write("two", xgboost.XGBClassifier(**small).fit(rows, labels == 0), "model.ubj")
    write("numbers", xgboost.XGBRegressor(**small).fit(rows[:, :3], rows[:, 3]), "wide.json", "wide.json")
    frame = pandas.DataFrame(rows[:, :2], columns=["a", "b"])
    write("named", xgboost.XGBRegressor(**small).fit(frame, rows[:, 3]))
    data = xgboost.DMatrix(rows, labels)
    write("booster", xgboost.train({"objective": "multi:softmax", "num_class": 3, "max_depth": 2}, data, 3))
    mixed = numpy.arange(150).reshape(3, 50).T.ravel()
    ranker = xgboost.XGBRanker(**small).fit(rows[mixed], 2 - labels[mixed], qid=numpy.repeat([0, 1, 2], 50))
    write("ranks", ranker, backend="auto")


FLOWERS = [5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3]
X = tensor("x", "FP32", [2, 4], FLOWERS)
THREE = tensor("x", "FP64", [2, 3], FLOWERS[:6])
COLUMNS = [tensor(name, "FP64", [2], [0.5, index + 2]) for index, name in enumerate("ab")]
BOTH = ["predict", "predict_proba"]

CASES = [
    metadata("classes"),
    infer("classes", "plain", X),
    infer("classes", "both outputs", X, outputs=BOTH),
    infer("classes", "unknown output", X, outputs=["foo"]),
    infer("classes", "missing values", tensor("x", "FP32", [1, 4], [None, 3.5, None, 0.2]), outputs=BOTH),
    infer("classes", "too few columns", THREE, ours=refused("Feature shape mismatch, expected: 4, got 3")),
    infer("classes", "text", tensor("x", "BYTES", [1, 4], ["a", "b", "c", "d"]), ours={"status": 400}),
    infer("classes", "no input", ours=refused(
        "There was an error encoding / decoding the payload: "
        "The 'np' codec only supports a single input tensor (0 were received)")),
    infer("two", "both outputs", X, outputs=BOTH),
    infer("numbers", "predict", THREE),
    infer("numbers", "no probabilities", THREE, outputs=["predict_proba"]),
    infer("named", "a frame", *COLUMNS, content_type="pd"),
    infer("named", "columns in another order", *reversed(COLUMNS), content_type="pd", ours={"status": 400}),
    infer("named", "an array", tensor("x", "FP64", [1, 2], [5, 3])),
    infer("booster", "predict", X),
    infer("ranks", "predict", X, ours=answered(
        "ranks", tensor("predict", "FP32", [2, 1], [0.646415650844574, -0.5860593318939209]))),
    infer("ranks", "no probabilities", X, outputs=["predict_proba"], ours=refused(
        "XGBRanker models do not support 'predict_proba")),
]  # fmt: skip
