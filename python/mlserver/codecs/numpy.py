"""The codec of NumPy arrays.

Importing this module does not import NumPy; only decoding does. A tensor from the server is decoded in place. An array is
copied once when it is encoded, so that later changes to it do not affect the response.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Type

from .._payload import tensor_output
from .._tensor import NUMPY_NAMES, BytesElements, FixedElements, NullableElements, TensorError, is_array, pack
from ..types import Datatype, RequestInput, ResponseOutput, TensorData
from .base import InputCodec, LoadedType, register_input_codec, register_request_codec
from .errors import TensorDecodeError
from .utils import InputOrOutput, SingleInputRequestCodec, as_input, checked_name, inject_batch_dimension

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NumpyCodec", "NumpyRequestCodec", "convert_nan", "to_datatype", "to_dtype"]

_DATATYPES = {name: datatype for datatype, name in NUMPY_NAMES.items() if datatype != "BF16"}


def to_dtype(input_or_output: InputOrOutput) -> "np.dtype[Any]":
    """Returns the dtype of a tensor's array. For BYTES, it is that of byte strings as long as the last dimension."""
    import numpy

    datatype = _datatype_of(input_or_output)
    if datatype == "BYTES":
        return numpy.dtype(f"S{input_or_output.shape[-1]}")
    return numpy.dtype(NUMPY_NAMES[datatype])


def to_datatype(dtype: "np.dtype[Any]") -> Datatype:
    """Returns the datatype of arrays of a dtype.

    Raises `TensorError` for a dtype without a datatype, such as complex numbers or dates.
    """
    return Datatype(datatype_name(dtype))


@lru_cache(maxsize=128)
def datatype_name(dtype: "np.dtype[Any]") -> str:
    """Returns the name of the datatype that `to_datatype` returns."""
    if dtype.kind in "OSU":
        return "BYTES"
    try:
        return _DATATYPES[dtype.name]
    except KeyError:
        raise TensorError(f"arrays of dtype {dtype} have no datatype; convert them first") from None


def convert_nan(val: Any) -> Any:
    """Returns `None` for NaN, and anything else as it is."""
    return None if isinstance(val, float) and val != val else val


def _datatype_of(tensor: InputOrOutput) -> str:
    datatype: Any = tensor.datatype
    return datatype if type(datatype) is str else str(getattr(datatype, "value", datatype))


def decode_array(tensor: InputOrOutput) -> "np.ndarray[Any, Any]":
    """Returns a tensor's data as an array of its dtype and shape."""
    datatype = _datatype_of(tensor)
    held = tensor.data.raw if isinstance(tensor.data, TensorData) else tensor.data
    try:
        if isinstance(held, FixedElements) and held.datatype == datatype:
            array = held.numpy()
        elif datatype == "BYTES":
            array = _decode_bytes(held, tensor)
        else:
            import numpy

            values = held.tolist() if isinstance(held, (FixedElements, BytesElements)) else held
            array = numpy.array(values, dtype=NUMPY_NAMES[datatype])
        shaped: np.ndarray[Any, Any] = array.reshape(tensor.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise TensorDecodeError(f"tensor '{tensor.name}': {error}") from error
    return shaped


def _decode_bytes(held: Any, tensor: InputOrOutput) -> Any:
    import numpy

    values = held.tolist() if isinstance(held, (FixedElements, BytesElements)) else held
    if isinstance(values, (str, bytes)):
        values = [values]
    if isinstance(values, list) and values and all(isinstance(value, bytes) for value in values):
        if any(value.endswith(b"\0") for value in values):
            return numpy.array(values, dtype=object)  # an array of byte strings would cut the zeros off
        array = numpy.array(values)
        wanted = _count(tensor.shape)
        if array.size != wanted and tensor.shape and sum(map(len, values)) == wanted * tensor.shape[-1]:
            # One element may hold many strings of the same length, which is then the last dimension.
            array = numpy.frombuffer(b"".join(values), dtype=f"S{tensor.shape[-1]}")
        return array
    if isinstance(values, list) and not all(isinstance(value, (str, list)) for value in values):
        return numpy.array(values, dtype=object)
    return numpy.array(values) if values else numpy.array([], dtype=str)


def _count(shape: List[int]) -> int:
    count = 1
    for dimension in shape:
        count *= dimension
    return count


def encode_data(array: "np.ndarray[Any, Any]", datatype: str) -> Any:
    """Returns an array's elements, row by row. An array of objects becomes a list."""
    dtype = array.dtype
    own, elements = _elements_of(dtype)
    if own == datatype:
        # Copied, so that later changes to the array do not affect the response.
        return elements(datatype, memoryview(array.tobytes()))
    if dtype.kind == "O":
        return array.ravel().tolist()
    return pack(array.ravel().tolist() if datatype == "BYTES" else array, datatype)


@lru_cache(maxsize=128)
def _elements_of(dtype: "np.dtype[Any]") -> Tuple[Optional[str], Type[FixedElements]]:
    """Returns the datatype whose elements are the bytes of arrays of a dtype, if there is one, and their type."""
    datatype = datatype_name(dtype) if dtype.kind in "biuf" and dtype.isnative else None
    return datatype, NullableElements if dtype.kind == "f" else FixedElements


#: The names in MLServer 1.x, which forks of its codecs import.
_to_ndarray = decode_array
_encode_data = encode_data


@register_input_codec
class NumpyCodec(InputCodec):
    """A tensor as a NumPy array."""

    ContentType = "np"
    TypeHint = LoadedType("numpy", "ndarray")

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_array(payload)

    @classmethod
    def encode_output(cls, name: str, payload: "np.ndarray[Any, Any]", **kwargs: Any) -> ResponseOutput:
        datatype = datatype_name(payload.dtype)
        shape = inject_batch_dimension(list(payload.shape))
        parameters = {"content_type": cls.ContentType}
        return tensor_output(checked_name(name), datatype, shape, parameters, encode_data(payload, datatype))

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> "np.ndarray[Any, Any]":
        return decode_array(response_output)

    @classmethod
    def encode_input(cls, name: str, payload: "np.ndarray[Any, Any]", **kwargs: Any) -> RequestInput:
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> "np.ndarray[Any, Any]":
        return decode_array(request_input)


@register_request_codec
class NumpyRequestCodec(SingleInputRequestCodec):
    """A request or response of one tensor as a NumPy array."""

    InputCodec = NumpyCodec
    ContentType = "np"
