"""Models of scikit-learn, and the requests to them."""

import pathlib
import pickle

from casefile import answered, infer, metadata, refused, settings, tensor

IMPLEMENTATION = "mlserver_sklearn.SKLearnModel"


def models(folder: pathlib.Path) -> None:
    """Trains and saves the models."""
    import joblib
    import numpy
    import pandas
    from sklearn.cluster import KMeans
    from sklearn.compose import make_column_transformer
    from sklearn.datasets import load_iris
    from sklearn.decomposition import PCA
    from sklearn.ensemble import IsolationForest
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC

    rows, labels = load_iris(return_X_y=True)
    texts = ["good fine nice", "bad awful poor", "nice good", "poor bad"]
    people = pandas.DataFrame({"age": [20, 35, 50, 65], "city": ["Bonn", "Oslo", "Oslo", "Rome"]}).astype({"city": object})

    def write(name, model, file="model.joblib", uri=".", **extra):
        path = settings(folder / name, IMPLEMENTATION, uri, backend="python", **extra) / file
        if file == "model.joblib":
            joblib.dump(model, path)
        else:
            path.write_bytes(pickle.dumps(model))

    write("iris", LogisticRegression(max_iter=200).fit(rows, labels))
    write("several", LinearRegression().fit(rows[:, :2], rows[:, 2:]), "model.pkl")
    write("text", make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, ["+", "-", "+", "-"]), "model.pickle")
    write("clusters", KMeans(3, random_state=0, n_init=1).fit(rows), "trained.pkl", "./trained.pkl")
    write("scaled", make_pipeline(StandardScaler(), PCA(2)).fit(rows), predict_fn="transform")
    write("vector", SVC().fit(rows, labels))
    write("outliers", IsolationForest(n_estimators=5, random_state=0).fit(rows))
    frame = pandas.DataFrame(rows, columns=list("abcd"))
    scaler = make_pipeline(StandardScaler()).fit(frame).set_output(transform="pandas")
    write("frame", scaler, predict_fn="transform")
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    write("people", make_pipeline(encoder, LogisticRegression()).fit(people, [0, 0, 1, 1]))
    write("sparse", OneHotEncoder().fit([[0], [1], [2]]), predict_fn="transform")
    pair = numpy.stack([labels, labels == 0], axis=1)
    write("pair", MultiOutputClassifier(LogisticRegression(max_iter=200)).fit(rows, pair))
    write("margins", SVC(kernel="linear").fit(rows, labels), predict_fn="decision_function")


FLOWERS = [5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3]
X = tensor("x", "FP32", [2, 4], FLOWERS)
DOUBLE = tensor("x", "FP64", [2, 4], FLOWERS)
PAIR = tensor("x", "FP64", [2, 2], FLOWERS[:4])
TEXT = tensor("x", "BYTES", [2], ["nice fine", "awful"])
WORDS = tensor("x", "BYTES", [2], ["nice fine", "awful"], "str")
COLUMNS = [tensor(name, "FP64", [2], [0.5, index]) for index, name in enumerate("abcd")]
CITY = tensor("city", "BYTES", [2], ["Oslo", "Rome"], "str")
AGE = tensor("age", "INT64", [2], [30, 60])

CASES = [
    metadata("iris"),
    infer("iris", "plain", X),
    infer("iris", "doubles", DOUBLE),
    infer("iris", "whole numbers", tensor("x", "INT64", [1, 4], [5, 3, 1, 0])),
    infer("iris", "both outputs", X, outputs=["predict", "predict_proba"]),
    infer("iris", "the other order", X, outputs=["predict_proba", "predict"]),
    infer("iris", "twice the same", X, outputs=["predict", "predict"]),
    infer("iris", "no outputs", X, outputs=[]),
    infer("iris", "unknown output", X, outputs=["predict", "foo"]),
    infer("iris", "no transform", X, outputs=["transform"], ours=refused(
        "<class 'sklearn.linear_model._logistic.LogisticRegression'> models do not support 'transform")),
    infer("iris", "one row", tensor("x", "FP32", [1, 4], FLOWERS[:4])),
    infer("iris", "nested", tensor("x", "FP32", [2, 4], [FLOWERS[:4], FLOWERS[4:]])),
    infer("iris", "too few columns", PAIR, ours=refused(
        "X has 2 features, but LogisticRegression is expecting 4 features as input.")),
    infer("iris", "one dimension", tensor("x", "FP32", [4], FLOWERS[:4]), ours={"status": 400}),
    infer("iris", "missing value", tensor("x", "FP64", [1, 4], [5.1, None, 1.4, 0.2]), ours={"status": 400}),
    infer("iris", "text", tensor("x", "BYTES", [1, 4], ["a", "b", "c", "d"]), ours={"status": 400}),
    infer("iris", "two inputs", X, DOUBLE),
    infer("iris", "no input", ours=refused(
        "There was an error encoding / decoding the payload: "
        "The 'np' codec only supports a single input tensor (0 were received)")),
    infer("iris", "a frame", *COLUMNS, content_type="pd"),
    infer("iris", "output as text", X, outputs=[{"name": "predict", "parameters": {"content_type": "str"}}],
          ours={"status": 400}),
    infer("iris", "unknown content type", X, content_type="zzz"),
    infer("iris", "parameters", X, parameters={"own": 1}),
    infer("several", "predict", PAIR),
    infer("several", "no probabilities", PAIR, outputs=["predict_proba"]),
    infer("text", "by content type", TEXT, content_type="str"),
    infer("text", "by the input's content type", WORDS),
    infer("text", "both", WORDS, outputs=["predict", "predict_proba"]),
    infer("text", "no content type", TEXT),
    infer("text", "output as text", WORDS, outputs=[{"name": "predict", "parameters": {"content_type": "str"}}]),
    infer("clusters", "predict", DOUBLE),
    infer("clusters", "transform", DOUBLE, outputs=["transform", "predict"]),
    infer("clusters", "another precision", X, ours=refused("Buffer dtype mismatch, expected 'const float' but got 'double'")),
    infer("scaled", "transform by default", DOUBLE),
    infer("scaled", "predict", DOUBLE, outputs=["predict"], ours={"status": 400}),
    infer("scaled", "no probabilities", DOUBLE, outputs=["predict_proba"]),
    infer("vector", "predict", X),
    infer("vector", "no probabilities", X, outputs=["predict_proba"]),
    infer("outliers", "predict", X),
    infer("frame", "columns", *COLUMNS, content_type="pd"),
    infer("frame", "an array", X),
    infer("frame", "named", *COLUMNS, content_type="pd", outputs=["transform"]),
    infer("frame", "several outputs", *COLUMNS, content_type="pd", outputs=["transform", "transform"]),
    infer("people", "predict", AGE, CITY, content_type="pd"),
    infer("people", "another order", CITY, AGE, content_type="pd", outputs=["predict", "predict_proba"]),
    infer("people", "a column is missing", AGE, content_type="pd", ours={"status": 400}),
    infer("people", "unknown city", AGE, tensor("city", "BYTES", [2], ["Oslo", "Lima"], "str"), content_type="pd",
          ours={"status": 400}),
    infer("people", "columns of unequal length", tensor("age", "INT64", [1], [30]), CITY, content_type="pd",
          ours={"status": 400}),
    infer("sparse", "transform", tensor("x", "INT64", [2, 1], [2, 0]), ours=answered(
        "sparse", tensor("transform", "FP64", [2, 3], [0, 0, 1, 1, 0, 0]))),
    infer("pair", "predict", X),
    infer("pair", "probabilities", X, outputs=["predict_proba"], ours={"status": 400}),
    infer("margins", "another method by default", X),
    infer("margins", "another method asked for", X, outputs=["decision_function"]),
]  # fmt: skip
