"""Plain values, such as the number of tokens to generate."""

from typing import Any

from mlserver._payload import tensor_output
from mlserver.codecs import InputCodec, register_input_codec
from mlserver.codecs.utils import as_input, checked_name
from mlserver.types import RequestInput, ResponseOutput

from .json import first

__all__ = ["RawCodec"]

_DATATYPES = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}


@register_input_codec
class RawCodec(InputCodec):
    """A tensor of one element as that element."""

    ContentType = "raw"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Tells whether `payload` is a number, a truth value or a text."""
        return type(payload) in _DATATYPES

    @classmethod
    def encode_output(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
        """Returns the output with the one value."""
        parameters = {"content_type": cls.ContentType}
        return tensor_output(checked_name(name), _DATATYPES[type(payload)], [1], parameters, [payload])

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns the first element."""
        return _text(first(response_output))

    @classmethod
    def encode_input(cls, name: str, payload: Any, **kwargs: Any) -> RequestInput:
        """Returns the input with the one value."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the first element."""
        return _text(first(request_input))


def _text(value: Any) -> Any:
    """Returns bytes, which gRPC and workers carry, as the text that the client meant."""
    return value.decode() if isinstance(value, bytes) else value
