"""JSON documents: one, or one for each element."""

from typing import Any, List

from mlserver._payload import tensor_output
from mlserver.codecs import InputCodec, register_input_codec
from mlserver.codecs.errors import CodecError
from mlserver.codecs.lists import as_list
from mlserver.codecs.utils import as_input, bytes_output, checked_name
from mlserver.types import RequestInput, ResponseOutput

from .values import decode_value, encode_value

__all__ = ["HuggingfaceListJSONCodec", "HuggingfaceSingleJSONCodec", "first"]


def first(tensor: Any) -> Any:
    """Returns the first element of a tensor.

    Raises `CodecError` when it has none.
    """
    for item in as_list(tensor.data):
        return item
    raise CodecError(f"`{tensor.name}` is empty: expected one element")


@register_input_codec
class HuggingfaceSingleJSONCodec(InputCodec):
    """A BYTES tensor of one element as the value of its JSON."""

    ContentType = "hg_json"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Tells whether `payload` is a dictionary."""
        return isinstance(payload, dict)

    @classmethod
    def encode_output(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
        """Returns the output with the JSON of `payload`."""
        parameters = {"content_type": cls.ContentType}
        return tensor_output(checked_name(name), "BYTES", [1], parameters, [encode_value(payload).encode()])

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns the value of the first element."""
        return decode_value(first(response_output))

    @classmethod
    def encode_input(cls, name: str, payload: Any, **kwargs: Any) -> RequestInput:
        """Returns the input with the JSON of `payload`."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the value of the first element."""
        return decode_value(first(request_input))


@register_input_codec
class HuggingfaceListJSONCodec(InputCodec):
    """A BYTES tensor as the values of its elements' JSON."""

    ContentType = "hg_jsonlist"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Tells whether `payload` is a list of dictionaries or of lists."""
        return isinstance(payload, list) and bool(payload) and all(isinstance(item, (dict, list)) for item in payload)

    @classmethod
    def encode_output(cls, name: str, payload: List[Any], **kwargs: Any) -> ResponseOutput:
        """Returns the output with the JSON of each item."""
        return bytes_output(name, [encode_value(item).encode() for item in payload], cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[Any]:
        """Returns the value of each element."""
        return [decode_value(item) for item in as_list(response_output.data)]

    @classmethod
    def encode_input(cls, name: str, payload: List[Any], **kwargs: Any) -> RequestInput:
        """Returns the input with the JSON of each item."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Any]:
        """Returns the value of each element."""
        return [decode_value(item) for item in as_list(request_input.data)]
