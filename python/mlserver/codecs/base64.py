"""The codec of bytes as base64."""

import base64
import binascii
from typing import Any, List, Union

from ..types import RequestInput, ResponseOutput
from .base import InputCodec, register_input_codec
from .lists import as_list, as_values, is_list_of
from .utils import as_input, bytes_output

__all__ = ["Base64Codec"]

_ENCODING = "ascii"


def _ensure_bytes(elem: Union[bytes, str]) -> bytes:
    return elem.encode(_ENCODING) if isinstance(elem, str) else elem


def _decode(elem: Union[bytes, str]) -> bytes:
    """Decodes base64. Other values are returned as they are."""
    data = _ensure_bytes(elem)
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return data


#: The name in MLServer 1.x, which forks of its codecs import.
_decode_base64 = _decode


@register_input_codec
class Base64Codec(InputCodec):
    """A BYTES tensor of base64 as a list of bytes."""

    ContentType = "base64"
    TypeHint = List[bytes]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_list_of(payload, bytes)

    @classmethod
    def encode_output(cls, name: str, payload: List[bytes], use_bytes: bool = True, **kwargs: Any) -> ResponseOutput:
        encoded = [base64.b64encode(_ensure_bytes(elem)) for elem in as_values(payload, bytes, str)]
        data = encoded if use_bytes else [elem.decode(_ENCODING) for elem in encoded]
        return bytes_output(name, data, cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[bytes]:
        return [_decode(elem) for elem in as_list(response_output.data)]

    @classmethod
    def encode_input(cls, name: str, payload: List[bytes], use_bytes: bool = True, **kwargs: Any) -> RequestInput:
        return as_input(cls.encode_output(name, payload, use_bytes))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[bytes]:
        return [_decode(elem) for elem in as_list(request_input.data)]
