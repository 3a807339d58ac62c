"""Models of MLflow, and V2 requests to them; `mlflow_scoring.py` has the requests of MLflow's own protocol."""

import pathlib

from casefile import infer, metadata, settings, tensor

IMPLEMENTATION = "mlserver_mlflow.MLflowRuntime"
HERE = pathlib.Path(__file__).resolve().parent


def models(folder: pathlib.Path) -> None:
    """Trains and saves the models."""
    import mlflow.pyfunc
    import mlflow.sklearn
    import numpy
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import Array, Object, Property
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    requirements = {"pip_requirements": ["mlflow"]}

    def write(name, script, inputs=None, outputs=None, params=None):
        target = settings(folder / name, IMPLEMENTATION, "./model") / "model"
        signature = ModelSignature(inputs, outputs, params) if inputs is not None or params is not None else None
        code = str(HERE / "mlflow_models" / f"{script}.py")
        mlflow.pyfunc.save_model(target, python_model=code, signature=signature, **requirements)
        description = target / "MLmodel"
        description.write_text(description.read_text().replace(f"{HERE}/", ""))

    rows, labels = load_iris(return_X_y=True, as_frame=True)
    rows.columns = ["sepal length", "sepal width", "petal length", "petal width"]
    classifier = LogisticRegression(max_iter=1000).fit(rows, labels)
    signature = ModelSignature(Schema([ColSpec("double", name) for name in rows.columns]), Schema([ColSpec("long")]))
    target = settings(folder / "flowers", IMPLEMENTATION, "./model") / "model"
    mlflow.sklearn.save_model(classifier, target, signature=signature, **requirements)

    kinds = ["boolean", "integer", "long", "float", "double", "string", "binary", "datetime"]
    text = Schema([ColSpec("string", "description")])
    write("columns", "describe", Schema([ColSpec(kind, kind) for kind in kinds]), text)
    nested = [ColSpec(Array("long"), "list"), ColSpec(Object([Property("name", "string")]), "object")]
    write("nested", "describe", Schema(nested), text)
    write("words", "describe", Schema([ColSpec("string", "text"), ColSpec("long", "n", required=False)]), text)
    write("unnamed", "describe", Schema([ColSpec("double"), ColSpec("double")]), text)
    write("free", "describe")
    scaling = [ParamSpec("scale", "double", 10.0), ParamSpec("word", "string", "none")]
    scaling.append(ParamSpec("adds", "long", [0], shape=(-1,)))
    write("scale", "scale", Schema([ColSpec("double", "x")]), Schema([ColSpec("double")]), ParamSchema(scaling))
    one = Schema([TensorSpec(numpy.dtype("float32"), (-1, 3))])
    write("tensor", "tensors", one, one)
    two = [TensorSpec(numpy.dtype("float64"), (-1, 2), name) for name in "ab"]
    write("named", "tensors", Schema(two), Schema([TensorSpec(numpy.dtype("float64"), (-1, 2), "sum"), two[0]]))
    kind = ParamSchema([ParamSpec("kind", "string", "array")])
    x = Schema([ColSpec("long", "x")])
    write("kinds", "kinds", x, Schema([ColSpec("double")]), kind)
    write("silent", "describe", x)


COLUMNS = [
    tensor("sepal length", "FP64", [2, 1], [5.1, 6.7]),
    tensor("sepal width", "FP64", [2, 1], [3.5, 3.0]),
    tensor("petal length", "FP64", [2, 1], [1.4, 5.2]),
    tensor("petal width", "FP64", [2, 1], [0.2, 2.3]),
]
SINGLE = [{**column, "datatype": "FP32"} for column in COLUMNS]
FLAT = [{**column, "shape": [2]} for column in COLUMNS]
EIGHT = [
    tensor("boolean", "BOOL", [1, 1], [True]),
    tensor("integer", "INT32", [1, 1], [1]),
    tensor("long", "INT64", [1, 1], [2]),
    tensor("float", "FP32", [1, 1], [0.5]),
    tensor("double", "FP64", [1, 1], [0.1]),
    tensor("string", "BYTES", [1, 1], ["s"]),
    tensor("binary", "BYTES", [1, 1], ["aGVsbG8="]),
    tensor("datetime", "BYTES", [1, 1], ["2020-01-02T03:04:05"]),
]
X = tensor("x", "FP64", [2, 1], [1.5, 2.0])
SIX = tensor("input-0", "FP32", [2, 3], [1, 2, 3, 4, 5, 6])
A = tensor("a", "FP64", [1, 2], [1, 2])
B = tensor("b", "FP64", [1, 2], [3, 4])
ONE = tensor("x", "INT64", [1, 1], [1])
REFUSED = {"status": 400}


def returned(content_type, *outputs):
    """Returns our answer if the original cannot encode its own."""
    parameters = {"content_type": content_type} if content_type else {}
    body = {"model_name": "kinds", "id": "1", "parameters": parameters, "outputs": list(outputs)}
    return {"status": 200, "body": body}


def array(name, datatype, shape, data):
    """Returns an output that is an array."""
    return tensor(name, datatype, shape, data, "np")


#: The values that the model `kinds` may return, and our answer if the original has none.
RETURNED = {
    "array": None,
    "integers": None,
    "scalar": returned("np", array("output-1", "FP64", [1], [0.5])),
    "number": returned("np", array("output-1", "FP64", [1], [0.5])),
    "word": returned("str", tensor("output-1", "BYTES", [1, 1], ["one"], "str")),
    "numbers": returned("np", array("output-1", "FP64", [2, 1], [0.5, 2.0])),
    "booleans": returned("np", array("output-1", "BOOL", [2, 1], [True, False])),
    "rows": returned("np", array("output-1", "INT64", [2, 2], [1, 2, 3, 4])),
    "words": None,
    "bytes": returned(None, tensor("output-1", "BYTES", [1, 1], ["b25l"], "base64")),
    "times": returned(None, tensor("output-1", "BYTES", [1, 1], ["2020-01-02T03:04:05"], "datetime")),
    "objects": returned(None, tensor("output-1", "BYTES", [2, 1], ['{"a":1}', '{"a":2,"b":"two"}'], "pd_json")),
    "empty": None,
    "series": returned("np", array("output-1", "FP64", [2, 1], [0.5, 2.0])),
    "frame": None,
    "dict": None,
    "lists": returned(
        "dict",
        array("numbers", "FP64", [2, 1], [0.5, 2.0]),
        tensor("words", "BYTES", [2, 1], ["a", "b"], "str"),
        array("one", "FP64", [1], [1.5]),
    ),
    "nested": returned(
        "dict",
        tensor("choices", "BYTES", [1, 1], ['{"text":"hi","index":0}'], "pd_json"),
        tensor("usage", "BYTES", [1, 1], ['{"tokens":3}'], "pd_json"),
    ),
    "nothing": {"status": 500, "body": {"error": "Model 'kinds' returned no predictions after inference"}},
    "unknown": {"status": 500},
    "error": {"status": 500},
    "value error": {"status": 400, "body": {"error": "this value is wrong"}},
}


def described(model, text):
    """Returns our answer of a model that describes its input."""
    output = tensor("output-1", "BYTES", [1, 1], [text], "str")
    body = {"model_name": model, "id": "1", "parameters": {"content_type": "str"}, "outputs": [output]}
    return {"status": 200, "body": body}


CASES = [
    *(metadata(name) for name in
      ["flowers", "columns", "nested", "words", "unnamed", "free", "scale", "tensor", "named", "kinds"]),
    metadata("silent") | {"ours": {"status": 200}},
    infer("flowers", "columns", *COLUMNS),
    infer("flowers", "columns of rank one", *FLAT),
    infer("flowers", "another order", *reversed(COLUMNS)),
    infer("flowers", "floats for doubles", *SINGLE),
    infer("flowers", "said to be a frame", *COLUMNS, content_type="pd"),
    infer("flowers", "outputs are not looked at", *COLUMNS, outputs=["predict"]),
    infer("flowers", "a column too many", *COLUMNS, X),
    infer("flowers", "a column is missing", *COLUMNS[:3], ours=REFUSED),
    infer("flowers", "text for numbers", *COLUMNS[:3], tensor("petal width", "BYTES", [2, 1], ["a", "b"]), ours=REFUSED),
    infer("flowers", "columns of unequal length", *COLUMNS[:3], tensor("petal width", "FP64", [1, 1], [1]), ours=REFUSED),
    infer("flowers", "no inputs", ours=REFUSED),
    infer("flowers", "an unknown parameter", *COLUMNS, parameters={"foo": 1}),
    infer("columns", "eight types", *EIGHT),
    infer("nested", "JSON", tensor("list", "BYTES", [1, 1], ["[1, 2]"]),
          tensor("object", "BYTES", [1, 1], ['{"name": "n"}']),
          ours=described("nested", "frame(list=['list(int:1, int:2)'], object=['dict(name=str:n)'])")),
    infer("nested", "no JSON", tensor("list", "BYTES", [1, 1], ["[1,"]), tensor("object", "BYTES", [1, 1], ["{}"]),
          ours=REFUSED),
    infer("words", "both", tensor("text", "BYTES", [2, 1], ["ab", "ü"]), tensor("n", "INT64", [2, 1], [1, 2])),
    infer("words", "an optional column is missing", tensor("text", "BYTES", [2, 1], ["ab", "ü"])),
    infer("unnamed", "by the metadata's names", tensor("input-0", "FP64", [1, 1], [1]),
          tensor("input-1", "FP64", [1, 1], [2])),
    infer("free", "no content type", X, ours={"status": 200}),
    infer("free", "two inputs without content type", A, ONE, ours={"status": 200}),
    infer("free", "an array", X, content_type="np"),
    infer("free", "a frame", X, ONE | {"name": "y", "shape": [2, 1], "data": [1, 2]}, content_type="pd"),
    infer("free", "a dict", A, B, content_type="dict",
          ours=described("free", "dict(a=f8[1, 2][[1.0, 2.0]], b=f8[1, 2][[3.0, 4.0]])")),
    infer("free", "a dict of what the inputs say", tensor("t", "BYTES", [1], ["ü"], "str"), A, content_type="dict",
          ours=described("free", "dict(t=list(str:ü), a=f8[1, 2][[1.0, 2.0]])")),
    infer("free", "text", tensor("t", "BYTES", [2], ["a", "b"]), content_type="str"),
    infer("free", "params", X, content_type="np", parameters={"scale": 2}),
    infer("scale", "defaults", X),
    infer("scale", "params", X, parameters={"scale": 2, "word": "abc", "adds": [1, 2]}),
    infer("scale", "a wrong param", X, parameters={"scale": "x"}, ours=REFUSED),
    infer("tensor", "one", SIX),
    infer("tensor", "another name", SIX | {"name": "x"}),
    infer("tensor", "another datatype", SIX | {"datatype": "FP64"}, ours=REFUSED),
    infer("tensor", "another shape", SIX | {"shape": [3, 2]}, ours=REFUSED),
    infer("tensor", "two", SIX, X),
    infer("named", "both", A, B),
    infer("named", "said to be a dict", A, B, content_type="dict"),
    infer("named", "one is missing", A, ours=REFUSED),
    *(infer("kinds", f"returns {kind}", ONE, parameters={"kind": kind}, ours=ours) for kind, ours in RETURNED.items()),
]  # fmt: skip
