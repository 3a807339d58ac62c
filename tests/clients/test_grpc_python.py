"""Features of gRPC that need models in Python: metadata, generated streams, and cancelled calls."""

import os
import shutil
import sys
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from conftest import PATIENCE, ROOT, Server, model
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

SLOW = '''
import asyncio
from pathlib import Path

from mlserver import MLModel


class Slow(MLModel):
    """Logs when a call begins, and when it is cancelled."""

    async def predict(self, payload):
        Path(__file__).with_name("begun").touch()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            Path(__file__).with_name("cancelled").touch()
            raise
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    (model(folder, "slow", implementation="slow.Slow") / "0" / "slow.py").write_text(SLOW)
    for example in ("headers", "streaming-text"):
        shutil.copytree(ROOT / "examples" / example, folder / example)
    # The tests' own interpreter.
    server = Server(folder, VIRTUAL_ENV=sys.prefix, PATH=os.environ["PATH"]).wait_until_ready()
    yield server
    server.stop()


@pytest.fixture
def channel(server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


def text(name: str, value: str) -> messages.ModelInferRequest:
    data = messages.ModelInferRequest.InferInputTensor(name="text", datatype="BYTES", shape=[1])
    data.contents.bytes_contents.append(value.encode())
    return messages.ModelInferRequest(model_name=name, inputs=[data])


def test_metadata_reach_the_model_and_its_headers_return(channel) -> None:
    stub = GRPCInferenceServiceStub(channel)
    metadata = (("x-one", "1"), ("x-binary-bin", b"\x00\xff"), ("other", "unseen"))
    answer, call = stub.ModelInfer.with_call(text("headers", ""), metadata=metadata, timeout=PATIENCE)
    # Binary metadata keep their wire format, which is text.
    assert list(answer.outputs[0].contents.bytes_contents) == [b"x-binary-bin: AP8", b"x-one: 1"]
    assert answer.parameters["count"].int64_param == 2
    trailers = dict(call.trailing_metadata())
    assert (trailers["x-one-seen"], trailers["x-binary-bin-seen"], trailers["ce-modelid"]) == ("1", "AP8", "headers")
    assert "other" not in trailers


def test_stream_of_python_model_is_answered(channel) -> None:
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    stream = channel.stream_stream(
        path, messages.ModelInferRequest.SerializeToString, messages.ModelInferResponse.FromString
    )
    requests = [text("streaming-text", "one two three"), text("streaming-text", "four")]
    answers = stream(iter(requests), timeout=PATIENCE)
    found = [answer.outputs[0].contents.bytes_contents[0] for answer in answers]
    assert found == [b"one ", b"two ", b"three ", b"four "]


def test_deadline_cancels_predict(server) -> None:
    folder = server.log.parent / "0"
    tensor = triton.InferInput("x", [1], "INT32").set_data_from_numpy(np.zeros(1, dtype=np.int32))
    with triton.InferenceServerClient(server.grpc) as client:
        start = time.monotonic()
        with pytest.raises(InferenceServerException) as failure:
            client.infer("slow", [tensor], client_timeout=0.5)
        assert failure.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert 0.5 <= time.monotonic() - start < PATIENCE
    assert (folder / "begun").exists()
    server.wait_for((folder / "cancelled").exists)
