"""Encodes the return values of MLflow models, which may be of any type, including those without a codec."""

from typing import Any, Optional

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, PandasCodec, StringCodec
from mlserver.codecs.base import find_input_codec_by_payload, find_request_codec, find_request_codec_by_payload
from mlserver.codecs.json import encode_to_json
from mlserver.codecs.utils import bytes_output
from mlserver.errors import MLServerError
from mlserver.types import InferenceResponse, Parameters, ResponseOutput

from .codecs import TensorDictCodec

__all__ = ["encode"]

#: The name of the output of models that return a single value. Request codecs use the same name.
_NAME = "output-1"


def encode(model: MLModel, value: Any) -> InferenceResponse:
    """Encodes the return value of a model as a response.

    Raises `MLServerError` if the value cannot be encoded.
    """
    if value is None:
        raise MLServerError(f"Model '{model.name}' returned no predictions after inference", 500)
    if find_request_codec_by_payload(value) is not None:
        return model.encode_response(value)
    content_type: Optional[str]
    if isinstance(value, dict):
        outputs = [_output(str(name), entry) for name, entry in value.items()]
        content_type = TensorDictCodec.ContentType
    else:
        outputs = [_output(_NAME, value)]
        parameters = outputs[0].parameters
        content_type = parameters.content_type if parameters is not None else None
        if content_type is not None and find_request_codec(content_type) is None:
            content_type = None
    return InferenceResponse(
        model_name=model.name,
        model_version=model.version,
        parameters=Parameters(content_type=content_type) if content_type else None,
        outputs=outputs,
    )


def _output(name: str, value: Any) -> ResponseOutput:
    """Encodes one output: with a codec if one matches, else as text, as an array of numbers, or as JSON."""
    codec = find_input_codec_by_payload(value)
    if codec is not None:
        return codec.encode_output(name, value)
    if isinstance(value, str):
        return StringCodec.encode_output(name, [value])
    array = _numbers(value)
    if array is not None:
        return NumpyCodec.encode_output(name, array)
    try:
        items = [encode_to_json(item) for item in (value if isinstance(value, list) else [value])]
    except (TypeError, ValueError) as error:
        message = f"cannot encode output `{name}` of {type(value)}: {error}"
        raise MLServerError(message, 500) from error
    return bytes_output(name, items, PandasCodec.JsonContentType)


def _numbers(value: Any) -> Any:
    """Returns numbers and booleans as an array, and `None` for other values."""
    import numpy

    try:
        array = numpy.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None
    return array if array.dtype.kind in "biuf" else None
