"""Models of LightGBM, and the requests to them; all are served in Python."""

import pathlib

from casefile import infer, metadata, refused, settings, tensor

IMPLEMENTATION = "mlserver_lightgbm.LightGBMModel"


def models(folder: pathlib.Path) -> None:
    """Trains and saves the models."""
    import lightgbm
    from sklearn.datasets import load_iris

    rows, labels = load_iris(return_X_y=True)

    def write(name, objective, target, file="model.bst", uri=".", **options):
        options = {"objective": objective, "num_leaves": 4, "num_threads": 1, "verbosity": -1, **options}
        booster = lightgbm.train(options, lightgbm.Dataset(rows, target), 3)
        booster.save_model(settings(folder / name, IMPLEMENTATION, uri, backend="python") / file)

    write("classes", "multiclass", labels, num_class=3)
    write("two", "binary", labels == 0)
    write("numbers", "regression", rows[:, 3], "numbers.txt", "./numbers.txt")


FLOWERS = [5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3]
X = tensor("x", "FP32", [2, 4], FLOWERS)
THREE = tensor("x", "FP64", [2, 3], FLOWERS[:6])
COLUMNS = [tensor(name, "FP64", [2], [0.5, index + 2]) for index, name in enumerate("abcd")]

CASES = [
    metadata("classes"),
    infer("classes", "plain", X),
    infer("classes", "doubles", tensor("x", "FP64", [2, 4], FLOWERS)),
    infer("classes", "outputs are not looked at", X, outputs=["foo", "predict"]),
    infer("classes", "missing values", tensor("x", "FP32", [1, 4], [None, 3.5, None, 0.2])),
    infer("classes", "output as text", X, outputs=[{"name": "predict", "parameters": {"content_type": "str"}}]),
    infer("classes", "a frame", *COLUMNS, content_type="pd"),
    infer("classes", "too few columns", THREE, ours=refused(
        "The number of features in data (3) is not the same as it was in training data (4).\n"
        "You can set ``predict_disable_shape_check=true`` to discard this error, but please be aware what you are doing.")),
    infer("classes", "text", tensor("x", "BYTES", [1, 4], ["a", "b", "c", "d"]), ours={"status": 400}),
    infer("two", "predict", X),
    infer("numbers", "predict", X),
]  # fmt: skip
