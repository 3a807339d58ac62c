"""Base classes of codecs that convert values to elements one by one: to JSON, unless a subclass overrides it."""

from typing import Any, List, Union

from mlserver._payload import tensor_output
from mlserver.codecs import InputCodec
from mlserver.codecs.errors import CodecError
from mlserver.codecs.lists import as_list
from mlserver.codecs.utils import as_input, bytes_output, checked_name
from mlserver.types import RequestInput, ResponseOutput

from .values import decode_value, encode_value

__all__ = ["ElementsCodec", "SingleElementCodec"]


class ElementsCodec(InputCodec):
    """A BYTES tensor as a list of values, one for each element."""

    @classmethod
    def is_item(cls, value: Any) -> bool:
        """Returns whether this codec encodes lists of such values."""
        return False

    @classmethod
    def encode_item(cls, item: Any) -> bytes:
        """Encodes a value as an element."""
        return encode_value(item).encode()

    @classmethod
    def decode_item(cls, element: Union[bytes, str]) -> Any:
        """Decodes an element."""
        return decode_value(element)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a non-empty list of such values."""
        return isinstance(payload, list) and bool(payload) and all(map(cls.is_item, payload))

    @classmethod
    def encode_output(cls, name: str, payload: List[Any], use_bytes: bool = True, **kwargs: Any) -> ResponseOutput:
        """Returns the output with an element for each value: bytes, or text if `use_bytes` is false."""
        items = [_sent(cls.encode_item(item), use_bytes) for item in payload]
        return bytes_output(name, items, cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[Any]:
        """Returns the value of each element."""
        return [cls.decode_item(element) for element in as_list(response_output.data)]

    @classmethod
    def encode_input(cls, name: str, payload: List[Any], use_bytes: bool = True, **kwargs: Any) -> RequestInput:
        """Returns the input with an element for each value: bytes, or text if `use_bytes` is false."""
        return as_input(cls.encode_output(name, payload, use_bytes))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Any]:
        """Returns the value of each element."""
        return [cls.decode_item(element) for element in as_list(request_input.data)]


class SingleElementCodec(InputCodec):
    """A tensor of one element as its value."""

    @classmethod
    def datatype(cls, payload: Any) -> str:
        """Returns the datatype of a tensor with this value."""
        return "BYTES"

    @classmethod
    def encode_item(cls, payload: Any) -> Any:
        """Encodes a value as an element."""
        return encode_value(payload).encode()

    @classmethod
    def decode_item(cls, element: Any) -> Any:
        """Decodes an element."""
        return decode_value(element)

    @classmethod
    def encode_output(cls, name: str, payload: Any, use_bytes: bool = True, **kwargs: Any) -> ResponseOutput:
        """Returns an output with a single element. JSON is bytes, or text if `use_bytes` is false."""
        parameters = {"content_type": cls.ContentType}
        item = _sent(cls.encode_item(payload), use_bytes)
        return tensor_output(checked_name(name), cls.datatype(payload), [1], parameters, [item])

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns the value of the first element."""
        return cls.decode_item(_first(response_output))

    @classmethod
    def encode_input(cls, name: str, payload: Any, use_bytes: bool = True, **kwargs: Any) -> RequestInput:
        """Returns an input with a single element. JSON is bytes, or text if `use_bytes` is false."""
        return as_input(cls.encode_output(name, payload, use_bytes))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the value of the first element."""
        return cls.decode_item(_first(request_input))


def _sent(item: Any, use_bytes: bool) -> Any:
    return item.decode() if isinstance(item, bytes) and not use_bytes else item


def _first(tensor: Any) -> Any:
    for element in as_list(tensor.data):
        return element
    raise CodecError(f"`{tensor.name}` is empty: expected one element")
