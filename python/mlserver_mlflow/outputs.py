"""What MLflow's models return, as outputs: more than the codecs take, for a model may return anything."""

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

#: The output of models that return one thing, as the codecs of requests name it.
_NAME = "output-1"


def encode(model: MLModel, value: Any) -> InferenceResponse:
    """Returns the response with a value that a model returned.

    Raises `MLServerError` when nothing stands for the value.
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
    """Returns one output: by a codec if one takes the value, as an array of numbers, as text, or else as JSON."""
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
        message = f"output `{name}` cannot be encoded, for it is {type(value)}: {error}"
        raise MLServerError(message, 500) from error
    return bytes_output(name, items, PandasCodec.JsonContentType)


def _numbers(value: Any) -> Any:
    """Returns numbers and truth values as an array, and `None` for anything else."""
    import numpy

    try:
        array = numpy.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None
    return array if array.dtype.kind in "biuf" else None
