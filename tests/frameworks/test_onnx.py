"""ONNX models answer in Python as onnxruntime itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import reasons, serve, settings, suite

suite("onnx")
if not os.environ.get("CI"):
    pytest.importorskip("skl2onnx")

import numpy
import onnx_models
import onnxruntime
from onnx import TensorProto, helper

IMPLEMENTATION = "mlserver_onnx.OnnxModel"
NAMES = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "int64": "INT64", "bool": "BOOL", "object": "BYTES"}


def tensor(name, array, datatype=None, shape=None):
    array = numpy.asarray(array)
    kind = datatype or ("BYTES" if array.dtype.kind in "OU" else NAMES[array.dtype.name])
    return {"name": name, "datatype": kind, "shape": shape or list(array.shape), "data": array.ravel().tolist()}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Returns a folder with all models; each is served in Python."""
    folder = tmp_path_factory.mktemp("onnx") / "models"
    found = {**onnx_models.estimators(), "network": onnx_models.network(), **onnx_models.texts()}
    for name, model in found.items():
        onnx_models.write(model, settings(folder / name, IMPLEMENTATION, backend="python"))
    named = settings(folder / "named", IMPLEMENTATION, "./other.onnx", backend="python", unknown=1)
    onnx_models.write(found["linear"], named, "other.onnx")
    options = {"graph_optimization_level": "ORT_DISABLE_ALL", "intra_op_num_threads": 1, "execution_mode": 0}
    onnx_models.write(
        found["scaled"],
        settings(
            folder / "options",
            IMPLEMENTATION,
            providers=["NoneExecutionProvider", "CPUExecutionProvider"],
            provider_options=[{"device": 1}, {"arena_extend_strategy": "kSameAsRequested"}],
            session_options=options,
            session_config_entries={"session.intra_op.allow_spinning": 0},
            run_options={"log_severity_level": 3, "memory.enable_memory_arena_shrinkage": "cpu:0"},
        ),
    )
    below = settings(folder / "below", IMPLEMENTATION, backend="python")
    onnx_models.write(onnx_models.adder("data/weights.bin"), below)
    onnx_models.weights(below / "data/weights.bin")
    linked = settings(folder / "linked", IMPLEMENTATION, "./served", backend="python")
    (linked / "v1").mkdir()
    onnx_models.write(onnx_models.adder("weights.bin"), linked / "v1")
    onnx_models.weights(linked / "v1/weights.bin")
    (linked / "served").symlink_to("v1")
    return folder


@pytest.fixture(scope="module")
def server(models):
    started = serve(models, sys.executable, MLSERVER_PARALLEL_WORKERS="1")
    try:
        yield started.wait_until_ready(120)
    finally:
        started.stop()


def ask(server, model, *inputs, **fields):
    body = {"inputs": list(inputs), **fields}
    if isinstance(body.get("outputs"), list):
        body["outputs"] = [{"name": name} for name in body["outputs"]]
    return server.post(f"/v2/models/{model}/infer", body)


def answer(server, model, *inputs, **fields):
    found = ask(server, model, *inputs, **fields)
    assert found.status == 200, found.body
    return found.json()["outputs"]


def refused(server, model, *inputs, **fields):
    found = ask(server, model, *inputs, **fields)
    assert found.status == 400, found.body
    return found.json()["error"]


def check(output, expected):
    """Compares an output with onnxruntime's value; a list is a matrix of one column."""
    expected = numpy.asarray(expected)
    shape = list(expected.shape)
    assert output["shape"] == (shape if len(shape) > 1 else [shape[0], 1])
    assert output["datatype"] == NAMES[expected.dtype.name]
    assert output["parameters"]["content_type"] == "np"
    assert numpy.array(output["data"], dtype=expected.dtype).tolist() == expected.ravel().tolist()


@pytest.mark.parametrize("model", ["linear", "doubles", "scaled", "forest", "network"])
def test_outputs_are_those_of_onnxruntime(model, models, server):
    session, _ = onnx_models.load(models / model / "model.onnx")
    kind = numpy.float64 if model == "doubles" else numpy.float32
    rows = onnx_models.flowers()[0].astype(kind)
    (given,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    expected = session.run(names, {given.name: rows})
    outputs = answer(server, model, tensor(given.name, rows), outputs=[*names, "predict"])
    assert [output["name"] for output in outputs] == [*names, "predict"]
    for output, value in zip(outputs, [*expected, expected[0]]):
        check(output, value)
    (default,) = answer(server, model, tensor(given.name, rows))
    assert default == outputs[-1]


@pytest.mark.parametrize("model", ["forest-maps", "words-maps"])
def test_maps_become_a_matrix_with_labels(model, models, server):
    session, _ = onnx_models.load(models / model / "model.onnx")
    rows = onnx_models.flowers()[0]
    labels, maps = session.run(None, {"X": rows})
    found, scores = answer(server, model, tensor("X", rows), outputs=["output_label", "output_probability"])
    check(found, labels)
    keys = scores["parameters"]["labels"]
    assert keys == ([0, 1, 2] if model == "forest-maps" else ["iris", "lily", "rose"])
    check(scores, numpy.array([[row[key] for key in keys] for row in maps], dtype=numpy.float32))
    metadata = server.get(f"/v2/models/{model}").json()
    assert metadata["outputs"][1] == {"name": "output_probability", "datatype": "FP32", "shape": [-1, 3]}


def test_columns_of_a_frame_feed_inputs_by_name(models, server):
    session, _ = onnx_models.load(models / "columns/model.onnx")
    city, width = numpy.array([["Oslo"], ["Bonn"]], dtype=object), numpy.array([[0.5], [2.0]], dtype=numpy.float32)
    labels, scores = session.run(None, {"city": city, "width": width})
    frame = [tensor("width", [0.5, 2.0]), tensor("unused", [1, 2]), tensor("city", ["Oslo", "Bonn"])]
    outputs = ["label", "probabilities"]
    found = answer(server, "columns", *frame, outputs=outputs, parameters={"content_type": "pd"})
    check(found[0], labels)
    check(found[1], scores)
    assert found == answer(server, "columns", tensor("city", city), tensor("width", width), outputs=outputs)
    instances = {"instances": [{"city": "Oslo", "width": 0.5}, {"city": "Bonn", "width": 2}]}
    assert server.post("/v1/models/columns:predict", instances).json() == {"predictions": labels.tolist()}


def test_numbers_are_converted_and_text_is_not(server):
    rows = numpy.arange(8).reshape(2, 4)
    (expected,) = answer(server, "linear", tensor("X", rows.astype(numpy.float32)))
    for kind in (numpy.float64, numpy.int64):
        assert answer(server, "linear", tensor("X", rows.astype(kind))) == [expected]
    error = refused(server, "linear", tensor("X", [["a", "b", "c", "d"]]))
    assert error == "input `X` is BYTES, but the model has FP32 there: send that"
    error = refused(server, "encoder", tensor("word", [[1.5]]))
    assert error == "input `word` is FP64, but the model has BYTES there: send that"


def test_text_flags_and_halves(server):
    (numbers,) = answer(server, "encoder", tensor("word", [["ä"], ["b"], ["?"]]))
    assert (numbers["datatype"], numbers["data"]) == ("INT64", [7, 8, -1])
    words, flags, halves = answer(server, "kinds", tensor("number", [2, 1]), outputs=["word", "is_one", "half"])
    assert (words["datatype"], words["shape"], words["data"]) == ("BYTES", [2, 1], ["zwölf", "one"])
    assert (flags["datatype"], flags["data"]) == ("BOOL", [False, True])
    assert (halves["datatype"], halves["data"]) == ("FP16", [2, 1])


def test_invalid_requests_are_refused(server):
    rows = [[1.0, 2.0, 3.0, 4.0]]
    assert refused(server, "network", tensor("wrong", rows)) == (
        "Model expects input(s) named ['x'] but received ['wrong']. Missing: ['x']"
    )
    assert refused(server, "columns", tensor("width", [[1.0]])) == (
        "Model expects input(s) named ['city', 'width'] but received ['width']. Missing: ['city']"
    )
    assert refused(server, "network", tensor("x", rows), outputs=["foo"]) == (
        "OnnxModel only supports 'predict' or model outputs (foo was received)"
    )
    assert "3" in refused(server, "network", tensor("x", [[1.0, 2.0, 3.0]]))
    assert refused(server, "network", tensor("x", rows), outputs=["label"] * 4).startswith("4 outputs are requested")
    assert answer(server, "network", tensor("x", rows))[0]["shape"] == [1, 2]


def test_metadata_describe_the_graph(server):
    metadata = server.get("/v2/models/network").json()
    assert metadata["platform"] == "onnx"
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["outputs"] == [
        {"name": "scores", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "label", "datatype": "INT64", "shape": [-1]},
    ]
    parameters = metadata["parameters"]
    assert parameters["backend"] == "python"
    assert parameters["opset"] == {"ai.onnx": 15}
    assert parameters["producer"] == "handmade 2"
    assert parameters["metadata"] == {"author": "Ada"}


def test_options_do_not_change_answers(server):
    rows = onnx_models.flowers()[0]
    expected = answer(server, "scaled", tensor("X", rows), outputs=["label", "probabilities"])
    found = answer(server, "options", tensor("X", rows), outputs=["label", "probabilities"])
    assert found[0] == expected[0]
    assert found[1]["data"] == pytest.approx(expected[1]["data"], rel=1e-6)
    parameters = server.get("/v2/models/options").json()["parameters"]
    assert parameters["backend"] == "python", "the providers decide"
    assert parameters["backend_reason"].startswith("`providers` names `NoneExecutionProvider`, for which ")


def test_file_of_another_name_is_served(server):
    rows = onnx_models.flowers()[0]
    assert answer(server, "named", tensor("X", rows)) == answer(server, "linear", tensor("X", rows))


@pytest.mark.parametrize("model", ["below", "linked"])
def test_external_data_below_the_folder_are_read(model, server):
    (output,) = answer(server, model, tensor("x", [[0.5, 0.5, 0.5, 0.5]]))
    assert output["data"] == [1.5, 2.5, 3.5, 4.5]


def test_external_data_elsewhere_are_refused(tmp_path):
    onnx_models.weights(tmp_path / "outside/weights.bin")
    absolute = str(tmp_path / "outside/weights.bin")
    cases = {
        "parent": (
            "../outside/weights.bin",
            16,
            "`../outside/weights.bin` is not in the folder of the model or below it",
        ),
        "absolute": (absolute, 16, f"`{absolute}` is not in the folder of the model or below it"),
        "link": ("link.bin", 16, "`link.bin` is a link that leaves the folder of the model"),
        "short": ("own.bin", 17, "`own.bin` has 20 bytes, but 17 bytes are expected at 4"),
        "missing": ("none.bin", 16, "`none.bin` cannot be read: No such file or directory"),
        "folder": ("inner", 16, "`inner` is not a regular file"),
    }
    for name, (location, length, _) in cases.items():
        folder = settings(tmp_path / "models" / name, IMPLEMENTATION, backend="python")
        onnx_models.write(onnx_models.adder(location, length), folder)
        (folder / "link.bin").symlink_to("../../outside/weights.bin")
        (folder / "inner").mkdir()
        onnx_models.weights(folder / "own.bin")
    found = reasons(tmp_path / "models", Path(sys.executable))
    for name, (_, _, reason) in cases.items():
        path = tmp_path / "models" / name / "model.onnx"
        assert found[name] == f"cannot load `{path}`: external data: {reason}"


def test_invalid_settings_and_graphs_are_reported(tmp_path):
    linear = onnx_models.estimators()["linear"]

    def add(name, model=linear, **extra):
        onnx_models.write(model, settings(tmp_path / name, IMPLEMENTATION, backend="python", **extra))

    add("provider", providers=["CUDAExecutionProvider"] if "CUDAExecutionProvider" not in available() else ["None"])
    add("options", provider_options=[{}, {}])
    add("attribute", session_options={"nothing": 1})
    add("value", session_options={"graph_optimization_level": "high"})
    add("type", providers="CPUExecutionProvider")
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    odd = onnx_models.graph([node], [("x", TensorProto.FLOAT, [None])], [])
    odd.graph.output.append(sequence)
    add("sequence", odd)
    (settings(tmp_path / "nonsense", IMPLEMENTATION, "./a file", backend="python") / "a file").write_text("no model")
    settings(tmp_path / "empty", IMPLEMENTATION, backend="python")
    found = reasons(tmp_path, Path(sys.executable))
    assert found["provider"].startswith("onnxruntime has none of the providers [")
    assert found["options"].startswith("`parameters.extra.provider_options` has 2 entries for 1 providers: give one")
    assert found["attribute"] == "`parameters.extra.session_options.nothing` is not an option of SessionOptions"
    assert found["value"].startswith(
        "`parameters.extra.session_options.graph_optimization_level`: invalid value 'high': expected one of ORT_DISABLE_ALL"
    )
    assert found["type"].startswith("invalid `parameters.extra`: `providers`: ")
    path = tmp_path / "sequence/model.onnx"
    assert found["sequence"] == f"cannot load `{path}`: output `y` is of the type sequence, which requests cannot carry"
    assert found["nonsense"].startswith(f"cannot load `{tmp_path}/nonsense/a file`: ")
    assert found["empty"] == f"`{tmp_path}/empty` is a directory without a model file: expected one of model.onnx"


def test_missing_package_is_named(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    onnx_models.write(onnx_models.network(), settings(tmp_path / "models/network", IMPLEMENTATION, backend="python"))
    (reason,) = reasons(tmp_path / "models", tmp_path / "bare/bin/python").values()
    assert reason.startswith(f"the model needs `onnxruntime`, which {tmp_path}/bare/bin/python (Python ")
    assert reason.endswith("bin/python -m pip install onnxruntime")


def available():
    return onnxruntime.get_available_providers()


def test_environment_is_overridden_by_the_settings(tmp_path):
    linear = onnx_models.estimators()["linear"]
    onnx_models.write(linear, settings(tmp_path / "own", IMPLEMENTATION, backend="python", session_options={}))
    onnx_models.write(linear, settings(tmp_path / "environment", IMPLEMENTATION, backend="python"))
    variable = {"MLSERVER_MODEL_ONNX_SESSION_OPTIONS": json.dumps({"nothing": 1})}
    found = reasons(tmp_path, Path(sys.executable), **variable)
    assert found["environment"] == "`parameters.extra.session_options.nothing` is not an option of SessionOptions"
    assert "own" not in found or not found["own"], found
    assert os.environ.get("MLSERVER_MODEL_ONNX_SESSION_OPTIONS") is None
