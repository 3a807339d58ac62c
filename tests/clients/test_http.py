"""`tritonclient.http` and `tritonclient.http.aio` from PyPI."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from conftest import Server, model, quickstart
from samples import DATATYPES, array, assert_same

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Returns the address of a server in the form that these clients expect."""
    folder = model(quickstart(tmp_path_factory.mktemp("models")), "echo")
    # JSON has no such numbers; the client reads their names.
    server = Server(folder, MLSERVER_NON_FINITE_JSON="string").wait_until_ready()
    yield server.url.removeprefix("http://")
    server.stop()


@pytest.fixture(params=["http", "http.aio"])
def call(request, address) -> Call:
    """Calls a method of a new client by name, whether or not it is a coroutine."""
    if request.param == "http":

        def blocking(method: str, *args: Any, **keywords: Any) -> Any:
            with http.InferenceServerClient(address) as client:
                return getattr(client, method)(*args, **keywords)

        return blocking

    async def waiting(method: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        async with http_aio.InferenceServerClient(address) as client:
            result = getattr(client, method)(*args, **keywords)
            return await result if inspect.isawaitable(result) else result

    return lambda method, *args, **keywords: asyncio.run(waiting(method, args, keywords))


def tensor(name: str, data: np.ndarray, datatype: str, binary: bool = True) -> http.InferInput:
    made = http.InferInput(name, list(data.shape), datatype)
    made.set_data_from_numpy(data, binary_data=binary)
    return made


def wanted(name: str, binary: bool) -> http.InferRequestedOutput:
    return http.InferRequestedOutput(name, binary_data=binary)


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("binary_in", [True, False], ids=["binary", "JSON"])
@pytest.mark.parametrize("binary_out", [True, False], ids=["to binary", "to JSON"])
def test_every_datatype_round_trips(call: Call, datatype: str, binary_in: bool, binary_out: bool) -> None:
    sent = array(datatype)
    if not binary_in and datatype == "BF16":
        with pytest.raises(InferenceServerException, match="BF16 inputs must be sent as binary"):
            tensor("x", sent, datatype, binary_in)
        return
    if (not binary_in and datatype in ("FP16", "FP32", "FP64")) or (not binary_out and datatype == "BF16"):
        # It writes NaN and infinities as words that JSON does not have, and cannot read their names as BF16.
        sent = np.ascontiguousarray(sent[:, np.isfinite(sent).all(axis=0)])
    answer = call("infer", "echo", [tensor("x", sent, datatype, binary_in)], outputs=[wanted("x", binary_out)])
    assert_same(answer.as_numpy("x"), sent)
    parameters = answer.get_output("x").get("parameters", {})
    assert set(parameters) == ({"binary_data_size"} if binary_out else set())


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("shape", [(0,), (2, 0), ()], ids=str)
def test_empty_tensors_and_scalars_round_trip(call: Call, datatype: str, shape: tuple[int, ...]) -> None:
    sent = array(datatype).flatten()[: int(np.prod(shape))].reshape(shape)
    for binary in (True, False):
        answer = call("infer", "echo", [tensor("x", sent, datatype)], outputs=[wanted("x", binary)])
        assert_same(answer.as_numpy("x"), sent)


def test_bytes_that_are_not_text_need_binary_data(call: Call) -> None:
    sent = np.array([b"\xff\x00\xfe", b"", b"text"], dtype=np.object_)
    answer = call("infer", "echo", [tensor("x", sent, "BYTES")], outputs=[wanted("x", True)])
    assert_same(answer.as_numpy("x"), sent)
    with pytest.raises(InferenceServerException, match="element 0 is not UTF-8.* request binary data") as failure:
        call("infer", "echo", [tensor("x", sent, "BYTES")], outputs=[wanted("x", False)])
    assert failure.value.status() == "500"


def test_json_and_binary_data_mix(call: Call) -> None:
    a, b, c = array("FP32"), array("INT64"), array("BYTES")
    inputs = [tensor("a", a, "FP32"), tensor("b", b, "INT64", binary=False), tensor("c", c, "BYTES")]
    answer = call("infer", "echo", inputs, outputs=[wanted("c", True), wanted("a", False), wanted("b", True)])
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["c", "a", "b"]
    for name, sent in [("a", a), ("b", b), ("c", c)]:
        assert_same(answer.as_numpy(name), sent)


def test_binary_output_covers_all_outputs_by_default(call: Call) -> None:
    # The client then sends `binary_data_output`, also when its inputs are JSON.
    inputs = [tensor("a", array("INT8"), "INT8", binary=False), tensor("b", array("BOOL"), "BOOL", binary=False)]
    answer = call("infer", "echo", inputs, request_id="q")
    assert answer.get_response()["id"] == "q"
    assert answer.get_response()["parameters"] == {}
    for name, sent in [("a", array("INT8")), ("b", array("BOOL"))]:
        assert answer.get_output(name)["parameters"] == {"binary_data_size": sent.nbytes}
        assert_same(answer.as_numpy(name), sent)


def test_parameters_round_trip(call: Call) -> None:
    answer = call("infer", "echo", [tensor("x", array("INT8"), "INT8")], parameters={"text": "a", "number": 3})
    assert answer.get_response()["parameters"] == {"text": "a", "number": 3}


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_compressed_requests_and_responses_are_read(
    call: Call, request_algorithm: str | None, response_algorithm: str | None, binary: bool
) -> None:
    sent = np.arange(30_000, dtype=np.float32).reshape(300, 100)
    answer = call(
        "infer", "echo", [tensor("x", sent, "FP32", binary)], outputs=[wanted("x", binary)],
        request_compression_algorithm=request_algorithm, response_compression_algorithm=response_algorithm,
    )  # fmt: skip
    assert_same(answer.as_numpy("x"), sent)


def test_concurrent_requests_of_one_client_are_answered(address) -> None:
    sent = [np.full((4, 4), number, dtype=np.int32) for number in range(50)]
    with http.InferenceServerClient(address, concurrency=8) as client:
        pending = [client.async_infer("echo", [tensor("x", data, "INT32")]) for data in sent]
        for answer, data in zip(pending, sent, strict=True):
            assert_same(answer.get_result().as_numpy("x"), data)


def test_native_model_takes_binary_data(call: Call) -> None:
    rows = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], dtype=np.float32)
    outputs = [wanted("predict", True), wanted("predict_proba", True)]
    answer = call("infer", "iris-xgboost", [tensor("input-0", rows, "FP32")], model_version="v1.0.0", outputs=outputs)
    assert answer.as_numpy("predict").tolist() == [[0], [2]]
    assert np.allclose(answer.as_numpy("predict_proba").sum(axis=1), 1)
    assert answer.get_output("predict")["parameters"] == {"content_type": "np", "binary_data_size": 16}


def test_health_and_metadata(call: Call) -> None:
    assert call("is_server_live")
    assert call("is_server_ready")
    assert call("is_model_ready", "echo")
    assert call("is_model_ready", "iris-xgboost", "v1.0.0")
    assert not call("is_model_ready", "nobody")
    metadata = call("get_server_metadata")
    assert metadata["name"] == "mlserver"
    assert "binary_tensor_data" in metadata["extensions"]
    assert call("get_model_metadata", "iris-xgboost", "v1.0.0")["name"] == "iris-xgboost"


def test_errors_have_message_and_status(call: Call) -> None:
    data = tensor("x", array("INT8"), "INT8")
    with pytest.raises(InferenceServerException, match="Model nobody not found") as failure:
        call("infer", "nobody", [data])
    assert failure.value.status() == "404"
    with pytest.raises(InferenceServerException, match="only supports the names of its inputs") as failure:
        call("infer", "echo", [data], outputs=[wanted("y", True)])
    assert failure.value.status() == "400"
    wrong = tensor("x", array("INT8"), "INT8").set_shape([3, 3])
    with pytest.raises(InferenceServerException, match="needs 9 elements, but 10 were given") as failure:
        call("infer", "echo", [wrong])
    assert failure.value.status() == "400"
    with pytest.raises(InferenceServerException, match="Model nobody") as failure:
        call("get_model_metadata", "nobody")
    assert failure.value.status() == "404"


def test_repository_loads_and_unloads(call: Call) -> None:
    def states() -> dict[str, str]:
        return {model["name"]: model["state"] for model in call("get_model_repository_index")}

    ready = {"breast-cancer-lightgbm": "READY", "echo": "READY", "iris-xgboost": "READY"}
    assert states() == ready
    call("unload_model", "iris-xgboost")
    try:
        assert states() == {**ready, "iris-xgboost": "UNAVAILABLE"}
        assert not call("is_model_ready", "iris-xgboost")
    finally:
        call("load_model", "iris-xgboost")
    assert states() == ready
    assert call("is_model_ready", "iris-xgboost")
    with pytest.raises(InferenceServerException, match="Model nobody not found") as failure:
        call("load_model", "nobody")
    assert failure.value.status() == "404"
