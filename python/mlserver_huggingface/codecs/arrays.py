"""Lists of arrays, such as sounds."""

from typing import Any, List

from mlserver._tensor import is_array
from mlserver.codecs import InputCodec, NumpyCodec, register_input_codec
from mlserver.codecs.utils import as_input
from mlserver.types import Parameters, RequestInput, ResponseOutput

__all__ = ["NumpyListCodec"]


@register_input_codec
class NumpyListCodec(InputCodec):
    """A tensor as a list of arrays, one for each row."""

    ContentType = "nplist"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a list of arrays of one shape."""
        if not isinstance(payload, list) or not payload or not all(map(is_array, payload)):
            return False
        return all(array.shape == payload[0].shape for array in payload)

    @classmethod
    def encode_output(cls, name: str, payload: List[Any], **kwargs: Any) -> ResponseOutput:
        """Returns the output with the arrays, which must have one shape, as its rows."""
        import numpy

        output = NumpyCodec.encode_output(name, numpy.stack(payload))
        output.parameters = Parameters(content_type=cls.ContentType)
        return output

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[Any]:
        """Returns an array for each row."""
        return list(NumpyCodec.decode_output(response_output))

    @classmethod
    def encode_input(cls, name: str, payload: List[Any], **kwargs: Any) -> RequestInput:
        """Returns the input with the arrays as its rows."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Any]:
        """Returns an array for each row."""
        return list(NumpyCodec.decode_input(request_input))
