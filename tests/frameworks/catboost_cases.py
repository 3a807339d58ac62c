"""Models of CatBoost, and the requests to them."""

import pathlib

from casefile import answered, infer, metadata, settings, tensor

IMPLEMENTATION = "mlserver_catboost.CatboostModel"


def models(folder: pathlib.Path) -> None:
    """Trains and saves the models."""
    import catboost
    import pandas
    from sklearn.datasets import load_iris

    rows, labels = load_iris(return_X_y=True)
    options = {"iterations": 3, "depth": 2, "random_seed": 0, "thread_count": 1, "verbose": False}
    options["allow_writing_files"] = False

    def write(name, model, file="model.cbm", uri="."):
        model.save_model(settings(folder / name, IMPLEMENTATION, uri, backend="python") / file)

    write("classes", catboost.CatBoostClassifier(**options).fit(rows, labels))
    words = [["rose", "lily", "iris"][label] for label in labels]
    write("words", catboost.CatBoostClassifier(**options).fit(rows, words), "model.bin")
    write("two", catboost.CatBoostClassifier(**options).fit(rows, labels == 0), "two.cbm", "two.cbm")
    frame = pandas.DataFrame({"city": ["Bonn", "Oslo", "Rome"] * 50, "width": rows[:, 0]}).astype({"city": object})
    write("cities", catboost.CatBoostClassifier(**options, cat_features=["city"]).fit(frame, [0, 1, 1] * 50))
    write("numbers", catboost.CatBoostRegressor(**options).fit(rows[:, :3], rows[:, 3]))


FLOWERS = [5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3]
X = tensor("x", "FP32", [2, 4], FLOWERS)
THREE = tensor("x", "FP64", [2, 3], FLOWERS[:6])
CITY = tensor("city", "BYTES", [2], ["Oslo", "Bonn"], "str")
WIDTH = tensor("width", "FP64", [2], [5.0, 6.0])

CASES = [
    metadata("classes"),
    infer("classes", "plain", X),
    infer("classes", "doubles", tensor("x", "FP64", [2, 4], FLOWERS)),
    infer("classes", "outputs are not looked at", X, outputs=["foo", "predict"]),
    infer("classes", "missing values", tensor("x", "FP32", [1, 4], [None, 3.5, None, 0.2])),
    infer("classes", "too few columns", THREE, ours={"status": 400}),
    infer("classes", "text", tensor("x", "BYTES", [1, 4], ["a", "b", "c", "d"]), ours={"status": 400}),
    infer("words", "text labels", X),
    infer("two", "predict", X),
    infer("cities", "a frame with text", CITY, WIDTH, content_type="pd"),
    infer("cities", "columns in another order", WIDTH, CITY, content_type="pd", ours={"status": 400}),
    infer("numbers", "a regressor", THREE, ours=answered(
        "numbers", tensor("predict", "FP64", [2, 1], [0.42313134030823873, 0.6487855353278951]))),
]  # fmt: skip
