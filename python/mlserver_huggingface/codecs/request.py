"""Requests as the arguments of a pipeline, and responses as its results."""

from typing import Any, Dict, List, Optional, Union

from mlserver.codecs import InputCodecLike, RequestCodec, StringCodec, get_decoded, has_decoded, register_request_codec
from mlserver.codecs.base import find_input_codec, find_input_codec_by_payload
from mlserver.types import InferenceRequest, InferenceResponse, Parameters

from .json import HuggingfaceListJSONCodec, HuggingfaceSingleJSONCodec

__all__ = ["HuggingfaceRequestCodec"]

_OUTPUT = "output"
#: Outputs whose names start with this prefix are the items of a list.
_ITEM = "output_"


@register_request_codec
class HuggingfaceRequestCodec(RequestCodec):
    """A request as a dictionary of arguments, by the names of its inputs; a response with a single output `output`."""

    ContentType = "hf"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a dictionary or a list."""
        return isinstance(payload, (dict, list))

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        """Returns the response with the JSON of each item of a list, or of a single value. `use_bytes=False` makes it text."""
        items = payload if isinstance(payload, list) else [payload]
        output = HuggingfaceListJSONCodec.encode_output(_OUTPUT, items, **kwargs)
        return InferenceResponse(model_name=model_name, model_version=model_version, outputs=[output])

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Union[Dict[str, Any], List[Any]]:
        """Returns the values of the outputs: as a list if all names start with `output_`, else by name."""
        found = {output.name: _codec(output, None).decode_output(output) for output in response.outputs}
        if found and all(name.startswith(_ITEM) for name in found):
            return [found[name] for name in sorted(found)]
        return found

    @classmethod
    def encode_request(cls, payload: Dict[str, Any], **kwargs: Any) -> InferenceRequest:
        """Returns the request with an input for each argument. `use_bytes=False` makes bytes text."""
        inputs = []
        for name, value in payload.items():
            codec = find_input_codec_by_payload(value) or HuggingfaceSingleJSONCodec
            inputs.append(codec.encode_input(name, value, **kwargs))
        return InferenceRequest(parameters=Parameters(content_type=cls.ContentType), inputs=inputs)

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Dict[str, Any]:
        """Decodes each argument by its content type, else that of the request if it is one of inputs, else as text."""
        parameters = request.parameters
        default = parameters.content_type if parameters is not None else None
        return {
            tensor.name: get_decoded(tensor) if has_decoded(tensor) else _codec(tensor, default).decode_input(tensor)
            for tensor in request.inputs
        }


def _codec(tensor: Any, default: Optional[str]) -> InputCodecLike:
    own = tensor.parameters.content_type if tensor.parameters is not None else None
    for content_type in (own, default):
        codec = find_input_codec(content_type) if content_type else None
        if codec is not None:
            return codec
    return StringCodec
