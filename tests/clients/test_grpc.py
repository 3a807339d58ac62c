"""`tritonclient.grpc` and `tritonclient.grpc.aio` from PyPI, and grpcio with their message classes."""

import asyncio
import inspect
import queue
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from conftest import PATIENCE, Server, model, quickstart
from samples import DATATYPES, array, assert_same
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = model(quickstart(tmp_path_factory.mktemp("models")), "echo")
    server = Server(folder).wait_until_ready()
    yield server
    server.stop()


@pytest.fixture(params=["grpc", "grpc.aio"])
def call(request, server) -> Call:
    """Calls a method of a new client by name, whether or not it is a coroutine."""
    if request.param == "grpc":

        def blocking(method: str, *args: Any, **keywords: Any) -> Any:
            with triton.InferenceServerClient(server.grpc) as client:
                return getattr(client, method)(*args, **keywords)

        return blocking

    async def waiting(method: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            result = getattr(client, method)(*args, **keywords)
            return await result if inspect.isawaitable(result) else result

    return lambda method, *args, **keywords: asyncio.run(waiting(method, args, keywords))


@pytest.fixture
def channel(server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture
def stub(channel) -> GRPCInferenceServiceStub:
    return GRPCInferenceServiceStub(channel)


def tensor(name: str, data: np.ndarray, datatype: str) -> triton.InferInput:
    made = triton.InferInput(name, list(data.shape), datatype)
    made.set_data_from_numpy(data)
    return made


def wanted(name: str) -> triton.InferRequestedOutput:
    return triton.InferRequestedOutput(name)


# ---------------------------------------------------------------------------------------------------------------- raw


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_round_trips(call: Call, datatype: str) -> None:
    sent = array(datatype)
    answer = call("infer", "echo", [tensor("x", sent, datatype)], outputs=[wanted("x")])
    assert_same(answer.as_numpy("x"), sent)
    assert answer.get_output("x").datatype == datatype


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("shape", [(0,), (2, 0), ()], ids=str)
def test_empty_tensors_and_scalars_round_trip(call: Call, datatype: str, shape: tuple[int, ...]) -> None:
    sent = array(datatype).flatten()[: int(np.prod(shape))].reshape(shape)
    assert_same(call("infer", "echo", [tensor("x", sent, datatype)]).as_numpy("x"), sent)


def test_bytes_that_are_not_text_round_trip(call: Call) -> None:
    sent = np.array([b"\xff\x00\xfe", b"", b"text"], dtype=np.object_)
    assert_same(call("infer", "echo", [tensor("x", sent, "BYTES")]).as_numpy("x"), sent)


def test_requested_outputs_are_answered_in_order(call: Call) -> None:
    sent = {datatype: array(datatype) for datatype in DATATYPES}
    inputs = [tensor(datatype, data, datatype) for datatype, data in sent.items()]
    answer = call("infer", "echo", inputs, outputs=[wanted(datatype) for datatype in reversed(DATATYPES)])
    assert [output.name for output in answer.get_response().outputs] == DATATYPES[::-1]
    for datatype, data in sent.items():
        assert_same(answer.as_numpy(datatype), data)


def test_ids_and_parameters_round_trip(call: Call) -> None:
    parameters = {"text": "é", "truth": True, "number": -(2**63), "fraction": 0.1}
    # The client sends the priority as an unsigned number.
    answer = call(
        "infer", "echo", [tensor("x", array("INT8"), "INT8")], request_id="q", parameters=parameters, priority=2**64 - 1
    ).get_response()
    assert answer.id == "q"
    found = {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in answer.parameters.items()}
    assert found == {**parameters, "priority": 2**64 - 1}


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_read(call: Call, algorithm: str) -> None:
    sent = np.arange(300_000, dtype=np.float32).reshape(300, 1000)
    answer = call("infer", "echo", [tensor("x", sent, "FP32")], compression_algorithm=algorithm)
    assert_same(answer.as_numpy("x"), sent)


def test_large_tensors_round_trip(call: Call) -> None:
    # More than the 4 MiB that gRPC servers accept by default.
    sent = np.arange(4 << 20, dtype=np.float32).reshape(1024, 4096)
    assert_same(call("infer", "echo", [tensor("x", sent, "FP32")]).as_numpy("x"), sent)


def test_concurrent_requests_of_one_client_are_answered(server) -> None:
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    sent = [np.full((4, 4), number, dtype=np.int32) for number in range(50)]
    with triton.InferenceServerClient(server.grpc) as client:
        for number, data in enumerate(sent):
            callback = lambda result, error, number=number: answers.put((number, result, error))  # noqa: E731
            client.async_infer("echo", [tensor("x", data, "INT32")], callback=callback)
        found = [answers.get(timeout=PATIENCE) for _ in sent]
    assert sorted(number for number, _, _ in found) == list(range(50))
    for number, result, error in found:
        assert error is None
        assert_same(result.as_numpy("x"), sent[number])


def test_native_model_answers(call: Call) -> None:
    rows = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], dtype=np.float32)
    outputs = [wanted("predict"), wanted("predict_proba")]
    answer = call("infer", "iris-xgboost", [tensor("input-0", rows, "FP32")], model_version="v1.0.0", outputs=outputs)
    assert answer.as_numpy("predict").tolist() == [[0], [2]]
    assert np.allclose(answer.as_numpy("predict_proba").sum(axis=1), 1)
    assert answer.get_response().model_version == "v1.0.0"


# -------------------------------------------------------------------------------------------------------------- typed

FIELDS = {
    "BOOL": "bool_contents", "INT64": "int64_contents", "UINT64": "uint64_contents", "FP16": "fp32_contents",
    "BF16": "fp32_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
}  # fmt: skip


def typed(data: np.ndarray, datatype: str, name: str = "x") -> messages.ModelInferRequest.InferInputTensor:
    made = messages.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=data.shape)
    values = data.astype(np.float32) if datatype in ("FP16", "BF16") else data
    getattr(made.contents, FIELDS[datatype]).extend(values.flatten().tolist())
    return made


@pytest.mark.parametrize("datatype", DATATYPES)
def test_typed_contents_round_trip(stub, datatype: str) -> None:
    sent = array(datatype)
    answer = stub.ModelInfer(messages.ModelInferRequest(model_name="echo", inputs=[typed(sent, datatype)]))
    (output,) = answer.outputs
    if datatype in ("FP16", "BF16"):
        # These datatypes have no field of their own.
        assert_same(triton.InferResult(answer).as_numpy("x"), sent)
        return
    assert not answer.raw_output_contents
    assert {field.name for field, _ in output.contents.ListFields()} == {FIELDS[datatype]}
    values = list(getattr(output.contents, FIELDS[datatype]))
    assert_same(np.array(values, dtype=sent.dtype).reshape(output.shape), sent)


def test_typed_contents_of_another_datatype_are_rejected(stub) -> None:
    request = messages.ModelInferRequest(model_name="echo", inputs=[typed(np.array([300]), "UINT8")])
    with pytest.raises(grpc.RpcError, match="element 0 is not a valid UINT8") as failure:
        stub.ModelInfer(request)
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# ----------------------------------------------------------------------------------------- metadata of calls


def test_metadata_become_headers_and_trailers(stub) -> None:
    request = messages.ModelInferRequest(model_name="echo", id="my-id", inputs=[typed(array("INT8"), "INT8")])
    metadata = (("x-text", "a"), ("x-bytes-bin", b"\x00\xff"), ("ce-source", "me"))
    _, done = stub.ModelInfer.with_call(request, metadata=metadata)
    assert done.code() == grpc.StatusCode.OK
    trailers = dict(done.trailing_metadata())
    assert (trailers["ce-id"], trailers["ce-modelid"], trailers["ce-specversion"]) == ("my-id", "echo", "0.3")


def test_tritonclient_headers_are_accepted(call: Call) -> None:
    headers = {"x-own": "1"}
    answer = call("infer", "echo", [tensor("x", array("INT8"), "INT8")], headers=headers, client_timeout=PATIENCE)
    assert_same(answer.as_numpy("x"), array("INT8"))


def test_errors_have_message_and_status(call: Call) -> None:
    data = tensor("x", array("INT8"), "INT8")
    with pytest.raises(InferenceServerException, match="Model nobody not found") as failure:
        call("infer", "nobody", [data])
    assert failure.value.status() == "StatusCode.NOT_FOUND"
    with pytest.raises(InferenceServerException, match="only supports the names of its inputs") as failure:
        call("infer", "echo", [data], outputs=[wanted("y")])
    assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"
    wrong = tensor("x", array("INT8"), "INT8").set_shape([3, 3])
    with pytest.raises(InferenceServerException, match="needs 9 elements, but 10 were given") as failure:
        call("infer", "echo", [wrong])
    assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException, match="Model nobody") as failure:
        call("get_model_metadata", "nobody")
    assert failure.value.status() == "StatusCode.NOT_FOUND"
    # Features that only Triton has.
    with pytest.raises(InferenceServerException, match="unknown method") as failure:
        call("get_model_config", "echo")
    assert failure.value.status() == "StatusCode.UNIMPLEMENTED"


# -------------------------------------------------------------------------------------------------- server and models


def test_health_and_metadata(call: Call) -> None:
    assert call("is_server_live")
    assert call("is_server_ready")
    assert call("is_model_ready", "echo")
    assert call("is_model_ready", "iris-xgboost", "v1.0.0")
    metadata = call("get_server_metadata")
    assert metadata.name == "mlserver"
    assert "binary_tensor_data" in metadata.extensions
    metadata = call("get_model_metadata", "iris-xgboost", "v1.0.0")
    (declared,) = metadata.inputs
    assert (metadata.name, declared.datatype, list(declared.shape)) == ("iris-xgboost", "FP32", [-1, 4])


def test_repository_loads_and_unloads(call: Call) -> None:
    def states() -> dict[str, str]:
        return {model.name: model.state for model in call("get_model_repository_index").models}

    ready = {"breast-cancer-lightgbm": "READY", "echo": "READY", "iris-xgboost": "READY"}
    assert states() == ready
    call("unload_model", "iris-xgboost")
    try:
        assert states() == {**ready, "iris-xgboost": "UNAVAILABLE"}
        with pytest.raises(InferenceServerException, match="Model iris-xgboost not found"):
            call("is_model_ready", "iris-xgboost")
    finally:
        call("load_model", "iris-xgboost")
    assert states() == ready
    assert call("is_model_ready", "iris-xgboost")
    with pytest.raises(InferenceServerException, match="Model nobody not found") as failure:
        call("load_model", "nobody")
    assert failure.value.status() == "StatusCode.NOT_FOUND"


# ------------------------------------------------------------------------------------------------------------ streams

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
REQUEST = messages.ModelInferRequest.SerializeToString
# MLServer streams bare responses; Triton's clients expect its wrapper message.
RESPONSE = messages.ModelInferResponse.FromString


def numbered(number: int) -> messages.ModelInferRequest:
    data = typed(np.array([number]), "INT32")
    return messages.ModelInferRequest(model_name="echo", id=f"i{number}", inputs=[data])


def test_stream_answers_each_request(channel) -> None:
    stream = channel.stream_stream(STREAM, REQUEST, RESPONSE)
    answers = list(stream(iter([numbered(number) for number in range(20)]), timeout=PATIENCE))
    assert [answer.outputs[0].contents.int_contents[0] for answer in answers] == list(range(20))
    assert {answer.id for answer in answers} == {"i0"}


def test_stream_answers_while_requests_arrive(server) -> None:
    async def talk() -> list[int]:
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            stream = channel.stream_stream(STREAM, REQUEST, RESPONSE)(timeout=PATIENCE)
            found = []
            for number in range(5):
                # Each answer arrives before the next request is sent.
                await stream.write(numbered(number))
                found.append((await stream.read()).outputs[0].contents.int_contents[0])
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK
            return found

    assert asyncio.run(talk()) == list(range(5))


def test_stream_error_ends_the_stream(channel) -> None:
    wrong = numbered(2)
    wrong.inputs[0].shape[0] = 7
    answers = channel.stream_stream(STREAM, REQUEST, RESPONSE)(iter([numbered(1), wrong]), timeout=PATIENCE)
    assert next(answers).outputs[0].contents.int_contents == [1]
    with pytest.raises(grpc.RpcError, match="needs 7 elements, but 1 were given") as failure:
        next(answers)
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_stream_client_disconnect_is_accepted(channel, stub) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(numbered(1))
    answers = channel.stream_stream(STREAM, REQUEST, RESPONSE)(iter(requests.get, None), timeout=PATIENCE)
    assert next(answers).outputs[0].contents.int_contents == [1]
    answers.cancel()
    with pytest.raises(grpc.RpcError):
        next(answers)
    requests.put(None)
    assert stub.ServerReady(messages.ServerReadyRequest(), timeout=PATIENCE).ready
