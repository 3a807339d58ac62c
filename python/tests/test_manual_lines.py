"""Lines that the original's manual prints, and names and values that its users rely on."""

import copy
import datetime
import importlib
import json
import logging
import pickle
from typing import Any

import pytest
from mlserver import MLModel, ModelSettings, Settings
from mlserver.codecs import (
    Base64Codec,
    DatetimeCodec,
    DecodedParameterName,
    NumpyCodec,
    PandasCodec,
    StringCodec,
    has_decoded,
)
from mlserver.context import model_context
from mlserver.logging import ModelLoggerFormatter
from mlserver.testing import serve
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RepositoryIndexResponse,
    RequestInput,
    ResponseOutput,
    TensorData,
)
from mlserver.types.dataplane import decode_on_demand

SETTINGS = ModelSettings(name="m", implementation=MLModel)


def test_one_value_is_a_list_of_one():
    encoded = Base64Codec.encode_input("foo", b"Python is fun", use_bytes=False)
    assert (encoded.data.root, encoded.shape) == (["UHl0aG9uIGlzIGZ1bg=="], [1, 1])
    assert Base64Codec.decode_input(encoded) == [b"Python is fun"]
    moment = datetime.datetime(2022, 1, 11, 11, 0, 0)
    for value in (moment, moment.isoformat()):
        times = DatetimeCodec.encode_input("foo", value, use_bytes=False)
        assert (times.data.root, times.shape) == (["2022-01-11T11:00:00"], [1, 1])


@pytest.mark.needs("pandas")
def test_dict_of_a_request_is_json():
    import pandas

    frame = pandas.DataFrame({"a": ["é", None], "b": [1, 2]})
    request = PandasCodec.encode_request(frame)
    assert json.loads(json.dumps(request.dict()))["inputs"][0]["data"] == ["é", None]
    assert request.model_dump()["inputs"][0]["data"] == ["é".encode(), None]
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": [b"\xff"]}
    assert InferenceRequest(inputs=[tensor]).dict()["inputs"][0]["data"] == [b"\xff"]
    assert "data" not in request.dict(include={"inputs": {0: {"name"}}})["inputs"][0]


def test_name_of_the_model_is_the_default_in_its_code():
    with model_context(SETTINGS):
        assert InferenceResponse(outputs=[]).model_name == "m"
        assert InferenceResponse(model_name="other", outputs=[]).model_name == "other"
    with pytest.raises(ValueError, match="model_name"):
        InferenceResponse(outputs=[])


def test_root_has_the_name_of_pydantic_1():
    assert TensorData(__root__=[1, 2]) == TensorData(root=[1, 2])
    item = {"name": "m", "state": "READY", "reason": ""}
    assert RepositoryIndexResponse(__root__=[item]) == RepositoryIndexResponse(root=[item])


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mlserver.sklearn", "SKLearnModel"),
        ("mlserver.xgboost", "XGBoostModel"),
        ("mlserver.kafka.handlers", "KafkaMessage"),
        ("mlserver.cli.main", "root"),
        ("mlserver.utils", "EventLoopBackend"),
        ("mlserver_huggingface.settings", "ExtraDict"),
    ],
)
def test_names_of_the_original_can_be_imported(module: str, name: str):
    assert getattr(importlib.import_module(module), name) is not None


def test_decoded_none_is_returned():
    tensor = RequestInput(name="x", shape=[1], datatype="BYTES", data=["a"], parameters=Parameters(_decoded_payload=None))
    model = MLModel(SETTINGS)
    assert model.decode(tensor) is None
    assert model.decode(tensor, default_codec=StringCodec) is None


@pytest.mark.needs("pandas")
def test_decoded_column_has_the_declared_datatype():
    import numpy

    decoded: Any = Parameters(_decoded_payload=numpy.array([1, 2]))
    tensor = RequestInput(name="a", shape=[2], datatype="INT32", data=[1, 2], parameters=decoded)
    assert str(PandasCodec.decode_request(InferenceRequest(inputs=[tensor]))["a"].dtype) == "int32"


def test_structured_records_have_the_fields_of_their_model():
    record = logging.LogRecord("n", logging.INFO, "file", 1, "text", (), None)
    formatter = ModelLoggerFormatter(Settings(use_structured_logging=True))
    with model_context(ModelSettings(name="m", implementation=MLModel, parameters={"version": "v2"})):
        line = json.loads(formatter.format(record))
    assert (line["model_name"], line["model_version"]) == ("m", "v2")
    assert record.model == ', "model_name": "m", "model_version": "v2"'
    formatter.format(record)
    assert record.model == ""


class Decoding(MLModel):
    """The last example of the manual's chapter about content types."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        seen = has_decoded(payload)
        try:
            decoded = getattr(payload.parameters, DecodedParameterName)
        except AttributeError as error:
            decoded = str(error)
        again = getattr(payload.parameters, DecodedParameterName, None)
        kind = f"{seen} {type(decoded).__name__} {again is decoded} {decoded if isinstance(decoded, str) else list(decoded)}"
        return InferenceResponse(outputs=[ResponseOutput(name="y", shape=[1], datatype="BYTES", data=[kind])])

    async def predict_stream(self, payloads):
        async for payload in payloads:
            yield await self.predict(payload)


@pytest.mark.needs("pandas")
def test_decoded_request_is_an_attribute_of_its_parameters():
    column = {"name": "a", "shape": [2], "datatype": "INT64", "data": [1, 2]}
    request = {"parameters": {"content_type": "pd"}, "inputs": [column]}
    with serve(Decoding, name="m") as model:
        for answer in (model.infer(request), next(iter(model.infer_stream([request])))):
            assert answer.outputs[0].data.root == ["False DataFrame True ['a']"]
        answer = model.infer({"parameters": {"a": 1}, "inputs": [column]})
        assert answer.outputs[0].data.root[0].startswith("False str False the request has no decoded value")
    with serve(Decoding, name="m", parameters={"content_type": "pd"}) as model:
        answer = model.infer({"parameters": {"a": 1}, "inputs": [column]})
        assert answer.outputs[0].data.root == ["False DataFrame True ['a']"]
    # Parameters belong to one request, and copies to none.
    made = InferenceRequest(**request)
    assert not hasattr(made.parameters, DecodedParameterName)
    decode_on_demand(made, SETTINGS)
    copied = copy.deepcopy(made)
    assert hasattr(made.parameters, DecodedParameterName)
    assert not hasattr(copied.parameters, DecodedParameterName)
    assert not hasattr(pickle.loads(pickle.dumps(made)).parameters, DecodedParameterName)
    assert made.model_dump() == copied.model_dump()


@pytest.mark.needs("numpy")
def test_nan_of_codecs_is_none():
    import numpy

    for dtype in ("float32", "float64", "float16"):
        array = numpy.array([1.0, numpy.nan], dtype=dtype)
        output = NumpyCodec.encode_output("x", array)
        assert output.data.root == [1.0, None]
        assert NumpyCodec.encode_input("x", array).data[1] is None
        assert list(NumpyCodec.encode_output("x", array).data) == [1.0, None]
        assert output.model_dump()["data"] == [1.0, None]
        numpy.testing.assert_array_equal(NumpyCodec.decode_output(output).ravel(), array)
        numpy.testing.assert_array_equal(NumpyCodec.decode_output(NumpyCodec.encode_output("x", array)).ravel(), array)
