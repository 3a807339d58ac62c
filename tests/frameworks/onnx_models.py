"""Trains and exports the ONNX models of the tests."""

from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES = 4


def flowers():
    """Returns rows of three classes."""
    random = numpy.random.default_rng(5)
    labels = numpy.arange(150) % 3
    return (random.normal(size=(150, FEATURES)) + labels[:, None]).astype(numpy.float32), labels


def estimators():
    """Returns the exported estimators by name."""
    from skl2onnx import to_onnx
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, y = flowers()
    words = numpy.array(["rose", "lily", "iris"])[y]
    forest = RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0).fit(x, y)
    named = RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0).fit(x, words)
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    linear = LinearRegression().fit(x, x[:, 0] * 2 - x[:, 1])
    matrix = {"zipmap": False}
    return {
        "linear": to_onnx(linear, x[:1]),
        "doubles": to_onnx(linear, x[:1].astype(numpy.float64)),
        "scaled": to_onnx(scaled, x[:1], options=matrix),
        "forest": to_onnx(forest, x[:1], options=matrix),
        "forest-maps": to_onnx(forest, x[:1]),
        "words-maps": to_onnx(named, x[:1]),
        "columns": _columns(ColumnTransformer, OneHotEncoder, StandardScaler, LogisticRegression, make_pipeline),
    }


def _columns(transformer, encoder, scaler, estimator, make_pipeline):
    """Returns a classifier with one input for each column."""
    import pandas
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    frame = pandas.DataFrame({"city": ["Bonn", "Oslo", "Rome"] * 50, "width": flowers()[0][:, 0]})
    columns = transformer([("city", encoder(), ["city"]), ("width", scaler(), ["width"])])
    fitted = make_pipeline(columns, estimator()).fit(frame, [0, 1, 1] * 50)
    types = [("city", StringTensorType([None, 1])), ("width", FloatTensorType([None, 1]))]
    return convert_sklearn(fitted, "columns", types, options={"zipmap": False})


def graph(nodes, inputs, outputs, weights=(), opset=15, ml=None, **fields):
    """Returns a model. Inputs and outputs are tuples of a name, a type and a shape."""
    values = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    tensors = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid("ai.onnx.ml", ml)] if ml else [])]
    made = helper.make_model(helper.make_graph(nodes, "graph", *values, tensors), opset_imports=opsets, **fields)
    made.ir_version = 8
    return made


def network():
    """Returns a small network whose first weights have an input of the same name, as old files do."""
    random = numpy.random.default_rng(3)
    shapes = {"w1": (FEATURES, 8), "b1": (8,), "w2": (8, 2), "b2": (2,)}
    weights = {name: random.normal(size=shape).astype(numpy.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["g1"]),
        helper.make_node("Relu", ["g1"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "w2", "b2"], ["g2"]),
        helper.make_node("Softmax", ["g2"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    inputs = [("x", TensorProto.FLOAT, ["rows", FEATURES]), ("w1", TensorProto.FLOAT, [FEATURES, 8])]
    outputs = [("scores", TensorProto.FLOAT, ["rows", 2]), ("label", TensorProto.INT64, ["rows"])]
    model = graph(nodes, inputs, outputs, weights, producer_name="handmade", producer_version="2")
    helper.set_model_props(model, {"author": "Ada"})
    return model


def texts():
    """Returns a graph that numbers texts, and one that returns texts, flags and halves."""
    encoder = helper.make_node(
        "LabelEncoder", ["word"], ["number"], domain="ai.onnx.ml", keys_strings=["ä", "b"], values_int64s=[7, 8]
    )
    back = helper.make_node(
        "LabelEncoder", ["number"], ["word"], domain="ai.onnx.ml", keys_int64s=[1, 2], values_strings=["one", "zwölf"]
    )
    one = numpy.array(1, dtype=numpy.int64)
    nodes = [
        back,
        helper.make_node("Equal", ["number", "one"], ["is_one"]),
        helper.make_node("Cast", ["number"], ["half"], to=TensorProto.FLOAT16),
    ]
    outputs = [("word", TensorProto.STRING, [None]), ("is_one", TensorProto.BOOL, [None])]
    outputs.append(("half", TensorProto.FLOAT16, [None]))
    number = [("number", TensorProto.INT64, [None])]
    word = [("word", TensorProto.STRING, [None, 1])]
    encoded = [("number", TensorProto.INT64, [None, 1])]
    return {
        "encoder": graph([encoder], word, encoded, ml=2),
        "kinds": graph(nodes, number, outputs, {"one": one}, ml=2),
    }


def adder(location, length=16):
    """Returns a graph that adds four numbers, which are in another file."""
    model = graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT, [None, FEATURES])],
        [("y", TensorProto.FLOAT, [None, FEATURES])],
        {"w": numpy.zeros(FEATURES, dtype=numpy.float32)},
    )
    (weights,) = model.graph.initializer
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "4", "length": str(length)}.items():
        entry = weights.external_data.add()
        entry.key, entry.value = key, value
    return model


def write(model, folder: Path, name="model.onnx"):
    """Writes a model. Those with external data cannot be checked here."""
    (folder / name).write_bytes(model.SerializeToString())


def weights(path: Path):
    """Writes the file of external data: four bytes, and the numbers 1 to 4."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0\0\0\0" + numpy.arange(1, FEATURES + 1, dtype="<f4").tobytes())


def load(path: Path):
    """Returns a session of onnxruntime itself, and the model."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]), onnx.load(path)
