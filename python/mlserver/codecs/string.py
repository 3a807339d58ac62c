"""The codec of text."""

from typing import Any, List, Union

from .._tensor import BytesElements
from ..types import RequestInput, ResponseOutput, TensorData
from .base import InputCodec, register_input_codec, register_request_codec
from .lists import as_list, is_list_of
from .utils import InputOrOutput, SingleInputRequestCodec, as_input, bytes_output

__all__ = ["StringCodec", "StringRequestCodec", "decode_str", "encode_str"]

_DEFAULT_ENCODING = "utf-8"


def encode_str(elem: str) -> bytes:
    """Returns text as UTF-8."""
    return elem.encode(_DEFAULT_ENCODING)


def decode_str(encoded: Union[bytes, str], str_codec: str = _DEFAULT_ENCODING) -> str:
    """Decodes bytes. Returns text as it is, and the empty string for any other value."""
    if isinstance(encoded, bytes):
        return encoded.decode(str_codec)
    return encoded if isinstance(encoded, str) else ""


def _decode(tensor: InputOrOutput) -> List[Any]:
    held = tensor.data.raw if isinstance(tensor.data, TensorData) else tensor.data
    if isinstance(held, BytesElements):
        return BytesElements(held.buffer, held.offsets, text=True).tolist()
    return [None if item is None else decode_str(item) for item in as_list(held)]


@register_input_codec
class StringCodec(InputCodec):
    """A BYTES tensor as a list of texts."""

    ContentType = "str"
    TypeHint = List[str]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_list_of(payload, str)

    @classmethod
    def encode_output(cls, name: str, payload: List[str], use_bytes: bool = True, **kwargs: Any) -> ResponseOutput:
        data = [encode_str(text) for text in payload] if use_bytes else payload
        return bytes_output(name, data, cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[str]:
        return _decode(response_output)

    @classmethod
    def encode_input(cls, name: str, payload: List[str], use_bytes: bool = True, **kwargs: Any) -> RequestInput:
        output = cls.encode_output(name, payload, use_bytes)
        return as_input(output)

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[str]:
        return _decode(request_input)


@register_request_codec
class StringRequestCodec(SingleInputRequestCodec):
    """A request or response of one BYTES tensor as a list of texts."""

    InputCodec = StringCodec
    ContentType = "str"
    TypeHint = List[str]
