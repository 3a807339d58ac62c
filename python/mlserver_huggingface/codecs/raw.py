"""Plain values, such as the number of tokens to generate."""

from typing import Any

from mlserver.codecs import register_input_codec

from .elements import SingleElementCodec

__all__ = ["RawCodec"]

_DATATYPES = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}


@register_input_codec
class RawCodec(SingleElementCodec):
    """A tensor of one element as that element."""

    ContentType = "raw"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a number, a boolean or a string."""
        return type(payload) in _DATATYPES

    @classmethod
    def datatype(cls, payload: Any) -> str:
        """Returns the datatype for a value's type."""
        return _DATATYPES[type(payload)]

    @classmethod
    def encode_item(cls, payload: Any) -> Any:
        """Returns the value itself."""
        return payload

    @classmethod
    def decode_item(cls, element: Any) -> Any:
        """Returns the element. Bytes, as received from gRPC and workers, are decoded to a string."""
        return element.decode() if isinstance(element, bytes) else element
