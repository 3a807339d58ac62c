"""MLflow's flavor `onnx`, which the server evaluates itself, beside MLflow's own scoring functions.

Each call is answered by both. `MLSERVER_TEST_STEP=1` sends every call. By default, every seventh call of `/invocations` is
sent, and every 21st request of V2.
"""

import itertools
import json
import math
import os
import shutil
import sys

import pytest
from support import need, serve, settings, suite

suite("mlflow")

IMPLEMENTATION = "mlserver_mlflow.MLflowRuntime"
STEP = int(os.environ.get("MLSERVER_TEST_STEP", "7"))
V2_STEP = 3 * STEP if STEP > 1 else 1
JSON, CSV = "application/json", "text/csv"
#: The answers of both are equal up to this.
RELATIVE, ABSOLUTE = 1e-5, 1e-6
#: The share of the calls which MLflow answers that the server may refuse by name.
MAX_REFUSED = 0.05
#: The same for models with a column of strings: MLflow's has any values, such as numbers and lists, which the server refuses.
MAX_REFUSED_TEXTS = 0.4
BY_NAME = "evaluates this model natively"

NAN, BIG = float("nan"), 2**40
#: The cells of a row, repeated for as many columns as there are.
CELLS = {
    "floats": [5.1, 3.5, -1.25, 0.2],
    "whole": [1.0, 2.0, 3.0, 0.0],
    "integers": [1, 2, 3, 4],
    "bits": [0, 1, 1, 0],
    "flags": [True, False, True, True],
    "mixed": [1, 2.5, 3, 0.5],
    "flagged": [True, 2.5, 3, False],
    "words": ["ä", "b", "Oslo", "1"],
    "worded": ["b", 2.5, 1, True],
    "digits": ["1", "2.5", "3", "4"],
    "missing": [5.1, None, 1.4, 0.2],
    "absent": [None, None, None, None],
    "NaN": [NAN, 1.5, 2.0, NAN],
    "infinite": [math.inf, 1.5, -math.inf, 2.0],
    "large": [3e9, -3e9, 1e300, 2.0],
    "long": [BIG, -BIG, 3, 4],
    "huge": [2**63, 1, 2, 3],
    "lists": [[1.0], [2.0], [3.0], [4.0]],
    "word lists": [["b"], ["ä"], ["b"], ["ä"]],
}


def _rows(cells, columns):
    """Returns two rows."""
    cycle = itertools.cycle(cells)
    return [[next(cycle) for _ in range(columns)] for _ in range(2)]


def _bodies(names, cells):
    """Returns bodies with rows of cells, by the names of the columns."""
    rows = _rows(cells, len(names))
    columns = [list(column) for column in zip(*rows)]
    records = [dict(zip(names, row)) for row in rows]
    split = {"columns": names, "data": rows}
    yield {"dataframe_split": split}
    yield {"dataframe_split": {"columns": names, "data": rows[:1], "index": [7]}}
    yield {"dataframe_split": {"data": rows}}
    yield {"dataframe_split": {"columns": names, "data": []}}
    yield {"dataframe_split": {"columns": names[::-1], "data": [row[::-1] for row in rows]}}
    yield {"dataframe_split": {"columns": ["more", *names], "data": [[0.5, *row] for row in rows]}}
    yield {"dataframe_split": {"columns": [names[0], *names], "data": [[row[0], *row] for row in rows]}}
    yield {"dataframe_split": {"columns": names[1:], "data": [row[1:] for row in rows]}}
    yield {"dataframe_records": records}
    yield {"dataframe_records": [records[0], {names[-1]: rows[1][-1]}]}
    yield {"dataframe_records": []}
    yield {"inputs": dict(zip(names, columns))}
    yield {"inputs": {name: [[cell] for cell in column] for name, column in zip(names, columns)}}
    yield {"inputs": {name: column[:1] for name, column in zip(names, columns)} | {"more": [1]}}
    yield {"inputs": {name: column[0] for name, column in zip(names, columns)}}
    yield {"inputs": rows}
    yield {"inputs": rows[0]}
    yield {"inputs": [rows]}
    yield {"inputs": [rows[0], rows[1][:-1]]}
    yield {"inputs": rows[0][0]}
    yield {"inputs": records}
    yield {"inputs": []}
    yield {"instances": rows}
    yield {"instances": records}
    yield {"instances": columns[0]}
    yield {"instances": dict(zip(names, columns))}


def _csv(names, cells):
    """Returns CSV with rows of cells."""
    rows = _rows(cells, len(names))
    written = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    header = ",".join(names)
    yield "\n".join([header, *written])
    yield "\n".join([header, written[0], ""])
    yield f"{header}\n"
    yield "\n".join([",".join(names[::-1]), *written])


def calls(names):
    """Returns the content type and the body of all calls."""
    for cells in CELLS.values():
        yield from ((JSON, json.dumps(body)) for body in _bodies(names, cells))
        if not any(isinstance(cell, list) for cell in cells):
            yield from ((CSV, body) for body in _csv(names, cells))


def _graphs():
    """Returns the graphs by name."""
    import numpy
    import onnx_models
    from onnx import TensorProto, helper
    from onnx_models import graph

    numbers, whole, flag, text = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
    named = {"scaled", "linear", "doubles", "forest-maps", "words-maps", "columns"}
    graphs = {name: made for name, made in onnx_models.estimators().items() if name in named}
    graphs.update(onnx_models.texts())
    graphs["network"] = onnx_models.network()
    graphs["external"] = onnx_models.adder("w.bin")
    length = helper.make_node(
        "LabelEncoder", ["word"], ["code"], domain="ai.onnx.ml", keys_strings=["b", "2.5"], values_int64s=[7, 8]
    )
    added = [helper.make_node("Add", ["a", "a"], ["twice"]), helper.make_node("Neg", ["n"], ["less"]), length]
    graphs["pairs"] = graph(
        added,
        [("a", numbers, [None]), ("n", whole, [None]), ("word", text, [None])],
        [("twice", numbers, [None]), ("less", whole, [None]), ("code", whole, [None])],
        ml=2,
    )
    for name, kind in {"int32": TensorProto.INT32, "int64": whole}.items():
        node = helper.make_node("Neg", ["x"], ["y"])
        graphs[name] = graph([node], [("x", kind, [None, 3])], [("y", kind, [None, 3])])
    graphs["flags"] = graph(
        [helper.make_node("Not", ["x"], ["y"])], [("x", flag, [None, 2])], [("y", flag, [None, 2])]
    )
    total = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    graphs["scalar"] = graph([total], [("x", numbers, [None, 2])], [("y", numbers, [])])
    flat = helper.make_node("Reshape", ["x", "shape"], ["y"])
    graphs["cube"] = graph(
        [flat],
        [("x", numbers, [None, 2, 2])],
        [("y", numbers, [None, 4])],
        {"shape": numpy.array([-1, 4], dtype=numpy.int64)},
    )
    return graphs


#: The models: their graph, and their signature: a tensor's type and shape, the types of columns, or nothing.
MODELS = {
    "scaled": ("scaled", None, ["a", "b", "c", "d"]),
    "scaled columns": ("scaled", ["double"] * 4, None),
    "scaled tensor": ("scaled", ("float32", (-1, 4)), None),
    "linear": ("linear", None, ["a", "b", "c", "d"]),
    "linear columns": ("linear", ["double", "float", "integer", "long"], None),
    "linear floats": ("linear", ["float"] * 4, None),
    "linear tensor": ("linear", ("float32", (-1, 4)), None),
    "linear fixed tensor": ("linear", ("float64", (2, 4)), None),
    "doubles": ("doubles", None, ["a", "b", "c", "d"]),
    "doubles columns": ("doubles", ["double", "float", "integer", "boolean"], None),
    "doubles tensor": ("doubles", ("float64", (-1, 4)), None),
    "maps": ("forest-maps", None, ["a", "b", "c", "d"]),
    "maps columns": ("forest-maps", ["double"] * 4, None),
    "words maps": ("words-maps", ["float"] * 4, None),
    "words maps tensor": ("words-maps", ("float32", (-1, 4)), None),
    "columns": ("columns", None, ["city", "width"]),
    "columns columns": ("columns", {"city": "string", "width": "double"}, None),
    "encoder": ("encoder", None, ["word"]),
    "encoder columns": ("encoder", {"word": "string"}, None),
    "kinds": ("kinds", None, ["number"]),
    "kinds columns": ("kinds", {"number": "long"}, None),
    "kinds tensor": ("kinds", ("int64", (-1,)), None),
    "network": ("network", None, ["a", "b", "c", "d"]),
    "network columns": ("network", ["double"] * 4, None),
    "external": ("external", ("float32", (-1, 4)), None),
    "pairs": ("pairs", None, ["a", "n", "word"]),
    "pairs columns": ("pairs", {"a": "double", "n": "long", "word": "string"}, None),
    "pairs others": ("pairs", {"a": "float", "n": "integer", "word": "string"}, None),
    "int32": ("int32", None, ["a", "b", "c"]),
    "int32 columns": ("int32", ["integer"] * 3, None),
    "int32 tensor": ("int32", ("int32", (-1, 3)), None),
    "int64 columns": ("int64", ["long", "integer", "long"], None),
    "int64 tensor": ("int64", ("int64", (-1, 3)), None),
    "flags": ("flags", None, ["a", "b"]),
    "flags columns": ("flags", ["boolean"] * 2, None),
    "scalar": ("scalar", None, ["a", "b"]),
    "scalar columns": ("scalar", ["double", "double"], None),
    "cube": ("cube", ("float32", (-1, 2, 2)), None),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves all models, and returns the folder of each with the names of its columns."""
    need("mlflow")
    if not os.environ.get("CI"):
        pytest.importorskip("skl2onnx")
    import mlflow
    import numpy
    import onnx_models
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, graph in _graphs().items():
        _save(mlflow, onnx_models, graph, folder / "graphs" / name)
    for name, (graph, kind, names) in MODELS.items():
        signature = None
        if isinstance(kind, tuple):
            dtype, shape = kind
            signature = ModelSignature(Schema([TensorSpec(numpy.dtype(dtype), shape)]))
            names = [f"x{index}" for index in range(shape[-1] if len(shape) > 1 else 1)]
        elif kind is not None:
            types = kind if isinstance(kind, dict) else {f"x{index}": each for index, each in enumerate(kind)}
            names = list(types)
            signature = ModelSignature(Schema([ColSpec(each, own) for own, each in types.items()]))
        own = settings(folder / name.replace(" ", "-"), IMPLEMENTATION, "./model", backend="native")
        shutil.copytree(folder / "graphs" / graph, own / "model")
        description = mlflow.models.Model.load(str(own / "model"))
        description.signature = signature
        description.save(str(own / "model/MLmodel"))
        found[name] = (own, names)
    return found


def _save(mlflow, onnx_models, graph, folder):
    """Saves a model. MLflow would read the data of other files."""
    import onnx

    external = any(each.data_location == onnx.TensorProto.EXTERNAL for each in graph.graph.initializer)
    plain = onnx_models.network() if external else graph
    mlflow.onnx.save_model(plain, folder, save_as_external_data=False, pip_requirements=["mlflow"])
    if external:
        onnx_models.write(graph, folder)
        onnx_models.weights(folder / "w.bin")


class _Original:
    """The scoring functions of MLflow's server, with one model."""

    def __init__(self, folder):
        import mlflow
        from mlflow.pyfunc import scoring_server

        self._scoring, self._error = scoring_server, mlflow.exceptions.MlflowException
        self.model = mlflow.pyfunc.load_model(str(folder))
        self._schema = self.model.metadata.get_input_schema()

    def ask(self, content_type, body):
        """Returns status and text of the answer."""
        try:
            found = self._scoring.invocations(body, content_type, self.model, self._schema)
        except self._error as error:
            return error.get_http_status_code(), error.message
        return found.status, found.response


def differs(found, expected):
    """Returns whether two values differ by more than the tolerance, or in their types."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return list(found) != list(expected) or any(differs(found[key], expected[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) != len(expected) or any(map(differs, found, expected))
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return not math.isnan(found)
    if isinstance(expected, float) and isinstance(found, float):
        return not math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(found) is not type(expected) or found != expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_invocations_answer_as_mlflow(name, saved):
    folder, names = saved[name]
    original = _Original(folder / "model")
    answered, refused, told = 0, 0, []
    every = list(calls(names))
    # Each model starts elsewhere, so that together they send all kinds of calls.
    chosen = every[list(MODELS).index(name) % STEP :: STEP]
    with serve(folder, "no-python") as server:
        server.wait_until_ready()
        for content_type, body in chosen:
            status, text = original.ask(content_type, body)
            answer = server.request("POST", "/invocations", body.encode(), {"content-type": content_type})
            answered += status == 200
            if status != 400 and answer.status == 400 and BY_NAME in answer.body.decode():
                refused += 1
            elif answer.status != status or (status == 200 and differs(answer.json(), json.loads(text))):
                told.append(f"{body}\n  expected {status} {text[:300]}\n  found    {answer.status} {answer.body[:300]}")
    if os.environ.get("MLSERVER_TEST_COUNTS"):
        print(f"{name}: {len(chosen)} calls, {answered} answered, {refused} refused by name")
    assert not told, f"{len(told)} of {len(chosen)} calls\n" + "\n".join(told[:10])
    most = MAX_REFUSED_TEXTS if "word" in names else MAX_REFUSED
    assert refused <= max(1, most * len(chosen)), f"{refused} of {len(chosen)} calls were refused by name"


#: NumPy's types of the inputs of graphs.
TYPES = {"float": "float32", "double": "float64", "int32": "int32", "int64": "int64", "bool": "bool", "string": "str"}


def _columns(kind, count):
    """Returns columns of two values of a type, or of the types of a list in turn."""
    import numpy

    kinds = itertools.cycle(kind if isinstance(kind, list) else [kind])
    cells = {"str": ["b", "ä", "2.5"], "bool": [True, False], "float32": [1.5, -2.25, 0.1], "float64": [1.5, 0.1]}
    found = []
    for position, own in zip(range(count), kinds):
        cycle = itertools.cycle(cells.get(own, [1, 0, 3]))
        found.append(numpy.array([next(cycle) for _ in range(position + 2)][-2:], dtype=own))
    return found


def v2_calls(names, inputs):
    """Returns the content type of requests, and their arrays by name. `inputs` are those of the graph, with their types."""
    import numpy

    own = [TYPES[kind.removeprefix("tensor(").removesuffix(")")] for _, kind in inputs]
    for kind in [own, "float32", "float64", "int32", "int64", "bool", ["float32", "int64"], "str", ["str", "float64"]]:
        columns = _columns(kind, len(names))
        yield "pd", dict(zip(names, columns))
        yield "pd", dict(zip(names[::-1], columns[::-1]))
        yield "pd", {"more": columns[0], **dict(zip(names, columns))}
        yield "pd", {name: column[:1] for name, column in zip(names, columns)}
        yield "dict", {name: column[:, None] for name, column in zip(names, columns)}
        yield "dict", dict(zip((name for name, _ in inputs), _columns(kind, len(inputs))))
        yield "dict", {name: column[:, None] for (name, _), column in zip(inputs, _columns(kind, len(inputs)))}
        if isinstance(kind, list) and kind is not own:
            continue
        matrix = numpy.column_stack(columns)
        cube = numpy.resize(matrix, (2, 2, 2))
        for shaped in [matrix, matrix[:1], matrix[:, 1:], matrix[:, 0], matrix[0], matrix[None], cube, cube[:0]]:
            if shaped.size == 0 and len(shaped):
                continue  # The server refuses rows without values.
            yield "np", {"any": shaped}
            yield "dict", {inputs[0][0]: shaped}


def _predicted(model, content_type, arrays):
    """Returns the outputs of MLflow's prediction as lists, or nothing if it fails."""
    import pandas

    if content_type == "pd":
        data = pandas.DataFrame({name: column.ravel() for name, column in arrays.items()})
    else:
        data = arrays["any"] if content_type == "np" else arrays
    try:
        found = model.predict(data)
    except Exception:
        return None
    if isinstance(found, pandas.DataFrame):
        outputs = {name: found[name].tolist() for name in found}
        return json.loads(json.dumps({"pd": [[name, [len(each), 1], each] for name, each in outputs.items()]}))
    outputs = []
    for name, each in found.items():
        flat = each if isinstance(each, list) else each.ravel().tolist()
        shape = [len(each)] if isinstance(each, list) else list(each.shape)
        outputs.append([name, [*shape, 1] if len(shape) == 1 else shape or [1], flat])
    return json.loads(json.dumps({"dict": outputs}))


def _answered(answer):
    """Returns the outputs of an answer as lists."""

    def values(output):
        is_json = output.get("parameters", {}).get("content_type") == "pd_json"
        return [json.loads(each) for each in output["data"]] if is_json else output["data"]

    told = answer.json()
    outputs = [[output["name"], output["shape"], values(output)] for output in told["outputs"]]
    return {told["parameters"]["content_type"]: outputs}


def _body(content_type, arrays):
    """Returns the request with arrays."""
    from onnx_client import DATATYPES, is_text

    inputs = []
    for name, array in arrays.items():
        shape = [len(array), 1] if content_type == "pd" else list(array.shape)
        datatype = "BYTES" if is_text(array) else DATATYPES[array.dtype.name]
        tensor = {"name": name, "shape": shape, "datatype": datatype, "data": array.ravel().tolist()}
        if datatype == "BYTES" and content_type == "pd":
            tensor["parameters"] = {"content_type": "str"}
        inputs.append(tensor)
    return {"parameters": {"content_type": content_type}, "inputs": inputs}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["native", "python"])
def test_v2_answers_as_mlflow_predicts(backend, saved, tmp_path):
    told, sent, answered, refused = [], 0, 0, 0
    for name, (folder, _) in saved.items():
        settings(tmp_path / name.replace(" ", "-"), IMPLEMENTATION, str(folder / "model"), backend=backend)
    with serve(tmp_path, sys.executable) as server:
        server.wait_until_ready()
        for place, (name, (folder, names)) in enumerate(saved.items()):
            original = _Original(folder / "model").model
            every = list(v2_calls(names, original._model_impl.inputs))
            for content_type, arrays in every[place % V2_STEP :: V2_STEP]:
                is_text = any(array.dtype.kind == "U" for array in arrays.values())
                # A dictionary has what the signature declares: a list for a column of strings.
                is_list = content_type == "dict" and "word" in arrays and original.metadata.get_input_schema() is not None
                if backend == "python" and content_type != "pd" and (is_text or is_list):
                    continue  # The codec of arrays decodes texts as bytes.
                expected = _predicted(original, content_type, arrays)
                answer = server.post(f"/v2/models/{name.replace(' ', '-')}/infer", _body(content_type, arrays))
                sent, answered = sent + 1, answered + (expected is not None)
                call = f"{name}: {content_type} { {each: (array.dtype, array.tolist()) for each, array in arrays.items()} }"
                if expected is None:
                    if answer.status == 200 or (backend == "native" and answer.status != 400):
                        told.append(f"{call}\n  expected an error\n  found    {answer.status} {answer.body[:300]}")
                elif answer.status == 400 and BY_NAME in answer.body.decode():
                    refused += 1
                elif answer.status != 200 or differs(_answered(answer), expected):
                    told.append(f"{call}\n  expected {expected}\n  found    {answer.status} {answer.body[:400]}")
    if os.environ.get("MLSERVER_TEST_COUNTS"):
        print(f"{backend}: {sent} requests, {answered} answered, {refused} refused by name")
    assert not told, f"{len(told)} of {sent} requests\n" + "\n".join(told[:10])
    assert refused <= MAX_REFUSED * sent, f"{refused} of {sent} requests were refused by name"
    assert answered > sent / 50
