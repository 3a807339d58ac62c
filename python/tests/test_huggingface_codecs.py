"""Codecs of Hugging Face pipelines that need neither transformers nor Pillow."""

import importlib
import json
import sys

import pytest
from mlserver.codecs import base
from mlserver.codecs.errors import CodecError
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestInput

numpy = pytest.importorskip("numpy")


@pytest.fixture(scope="module", autouse=True)
def codecs():
    """Imports the module that registers the codecs, only for these tests."""
    registries = [base._input_codecs, base._request_codecs]
    before = [dict(registry._codecs) for registry in registries]
    for name in [name for name in sys.modules if name.startswith("mlserver_huggingface")]:
        del sys.modules[name]
    yield importlib.import_module("mlserver_huggingface.codecs")
    for registry, codecs in zip(registries, before):
        registry._codecs = codecs


def tensor(data, datatype="BYTES", shape=None, content_type=None):
    parameters = Parameters(content_type=content_type) if content_type else None
    return RequestInput(name="x", datatype=datatype, shape=shape or [len(data)], data=data, parameters=parameters)


def test_request_codec_decodes_arguments_by_name(codecs):
    inputs = [
        tensor(["a", "b"]),
        tensor([5], "INT64", content_type="raw").model_copy(update={"name": "top_k"}),
        tensor(['{"a": [1, null]}'], content_type="hg_json").model_copy(update={"name": "options"}),
    ]
    found = codecs.HuggingfaceRequestCodec.decode_request(InferenceRequest(inputs=inputs))
    assert found == {"x": ["a", "b"], "top_k": 5, "options": {"a": [1, None]}}
    # The content type of the request is the default of its inputs, if it is a content type of inputs.
    listed = InferenceRequest(parameters=Parameters(content_type="hg_jsonlist"), inputs=[tensor(["1", "[2]"])])
    assert codecs.HuggingfaceRequestCodec.decode_request(listed) == {"x": [1, [2]]}


def test_request_codec_round_trips_arguments(codecs):
    arguments = {"texts": ["a", "b"], "n": 3, "flag": True, "share": 0.5, "options": {"a": 1}, "rows": [{"b": 2}, {}]}
    request = codecs.HuggingfaceRequestCodec.encode_request(arguments)
    types = {each.name: each.parameters.content_type for each in request.inputs}
    assert types == {"texts": "str", "n": "raw", "flag": "raw", "share": "raw", "options": "hg_json", "rows": "hg_jsonlist"}
    assert codecs.HuggingfaceRequestCodec.decode_request(request) == arguments


def test_request_codec_encodes_results_as_json_output(codecs):
    result = [{"score": numpy.float32(0.5), "holes": float("nan"), "box": (1, 2)}, numpy.arange(2)]
    response = codecs.HuggingfaceRequestCodec.encode_response("m", result)
    (output,) = response.outputs
    assert (output.name, output.shape, output.parameters.content_type) == ("output", [2, 1], "hg_jsonlist")
    assert [json.loads(item) for item in output.data] == [{"score": 0.5, "holes": None, "box": [1, 2]}, [0, 1]]
    assert codecs.HuggingfaceRequestCodec.decode_response(response)["output"][1] == [0, 1]
    items = [output.model_copy(update={"name": f"output_{index}"}) for index in (1, 0)]
    found = codecs.HuggingfaceRequestCodec.decode_response(InferenceResponse(model_name="m", outputs=items))
    assert isinstance(found, list)
    assert len(found) == 2


def test_numpy_list_codec_round_trips_rows(codecs):
    rows = codecs.NumpyListCodec.decode_input(tensor([1, 2, 3, 4], "FP32", [2, 2]))
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4]]
    encoded = codecs.NumpyListCodec.encode_input("x", rows)
    assert (encoded.shape, encoded.parameters.content_type) == ([2, 2], "nplist")
    assert not codecs.NumpyListCodec.can_encode([])


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("HuggingfaceSingleJSONCodec", {"a": 1}),
        ("HuggingfaceListJSONCodec", [{"a": 1}, [2]]),
        ("HuggingfaceConversationCodec", [{"a": 1}]),
        ("RawCodec", "a"),
    ],
)
def test_codecs_write_text_on_request(codec, value, codecs):
    codec = getattr(codecs, codec)
    for encode, decode in ((codec.encode_output, codec.decode_output), (codec.encode_input, codec.decode_input)):
        written = encode("x", value, use_bytes=False)
        assert all(isinstance(item, str) for item in written.data), written.data
        assert decode(written) == value
        assert codec is codecs.RawCodec or all(isinstance(item, bytes) for item in encode("x", value).data)


def test_request_codec_writes_text_on_request(codecs):
    arguments = {"texts": ["a"], "n": 3, "options": {"a": 1}, "rows": [{"b": 2}]}
    request = codecs.HuggingfaceRequestCodec.encode_request(arguments, use_bytes=False)
    assert [list(each.data) for each in request.inputs] == [["a"], [3], ['{"a": 1}'], ['{"b": 2}']]
    assert codecs.HuggingfaceRequestCodec.decode_request(request) == arguments
    response = codecs.HuggingfaceRequestCodec.encode_response("m", {"a": 1}, use_bytes=False)
    assert list(response.outputs[0].data) == ['{"a": 1}']


def test_arrays_of_several_shapes_are_no_rows(codecs):
    assert codecs.NumpyListCodec.can_encode([numpy.zeros(2), numpy.ones(2)])
    arrays = [numpy.zeros(2), numpy.ones(3)]
    assert not codecs.NumpyListCodec.can_encode(arrays)
    (only,) = codecs.HuggingfaceRequestCodec.encode_request({"a": arrays}).inputs
    assert json.loads(only.data[0]) == [[0, 0], [1, 1, 1]]


@pytest.mark.parametrize("codec", ["HuggingfaceListJSONCodec", "HuggingfaceSingleJSONCodec"])
def test_json_codecs_reject_invalid_json(codec, codecs):
    with pytest.raises(CodecError, match="an element is expected as JSON"):
        getattr(codecs, codec).decode_input(tensor(["{"]))


@pytest.mark.parametrize("codec", ["RawCodec", "HuggingfaceSingleJSONCodec"])
def test_single_element_codecs_reject_empty_tensor(codec, codecs):
    with pytest.raises(CodecError, match="`x` is empty: expected one element"):
        getattr(codecs, codec).decode_input(tensor([]))


def test_conversation_codec_requires_supporting_transformers(codecs):
    described = {"uuid": "1", "past_user_inputs": [], "generated_responses": [], "new_user_input": "hi"}
    with pytest.raises(CodecError, match="does not support conversations"):
        codecs.HuggingfaceListJSONCodec.decode_input(tensor([json.dumps(described)]))


def test_folder_of_the_settings_is_the_model_only_if_it_has_one(codecs, tmp_path):
    from mlserver.settings import ModelSettings
    from mlserver_huggingface.pipeline import model_name
    from mlserver_huggingface.settings import HuggingFaceSettings

    def found(uri, **extra):
        settings = {"name": "m", "implementation": "mlserver_huggingface.HuggingFaceRuntime", "parameters": {"uri": uri}}
        source = str(tmp_path / "model-settings.json")
        return model_name(HuggingFaceSettings(task="text-classification", **extra), ModelSettings.from_source(settings, source))

    for uri in (None, ".", "./", str(tmp_path), f"file://{tmp_path}"):
        assert found(uri) is None, uri
        assert found(uri, pretrained_model="gpt2") == "gpt2"
    assert found("./model") == "./model", "a missing folder is an error"
    assert found("distilbert-base-uncased") == "distilbert-base-uncased"
    (tmp_path / "config.json").write_text("{}")
    for uri in (".", str(tmp_path)):
        assert found(uri) == uri
