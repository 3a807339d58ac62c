"""Tensor elements as buffers, and their conversion to and from Python values.

A tensor from the server is never a list. Its elements are in one of two classes:

* `FixedElements(datatype, buffer)`: numbers and booleans in a `memoryview` of bytes: little-endian, row-major, without gaps,
  at any alignment. The NumPy codec reads it in place (`numpy.frombuffer`), and the array is writable if the memory is:
  receive into a `bytearray`, not into `bytes`, or the codec has to copy.
* `BytesElements(buffer, offsets, text)`: the elements of a BYTES tensor, end to end in one buffer. `offsets` has one entry
  more than there are elements, as little-endian unsigned 32-bit integers; element `i` is `buffer[offsets[i]:offsets[i + 1]]`.
  If `text` is true, they came as JSON strings and Python sees `str`; else (gRPC, binary tensors) it sees `bytes`.

Both are sequences that convert one element at a time, or all of them with `tolist()`. `pack` converts the data of a response
(elements, arrays, lists, nested lists, text) to elements of a datatype, with at most one copy.

A tensor whose data is not what its datatype and shape declare (`null` in BYTES, text in FP32) travels as JSON: it is received
as the parsed value, and sent as `JsonElements`.

`mlserver._payload` builds requests from elements, and converts responses to elements.
"""

import json
import math
import struct
import sys
from array import array
from functools import lru_cache
from itertools import accumulate
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

#: Bytes per element of the datatypes that have a fixed width.
WIDTHS: Dict[str, int] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
}

# Type codes of `array` and `memoryview`; 16-bit floats have no code that both support.
_CODES: Dict[str, str] = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP32": "f",
    "FP64": "d",
}

_FLOATS = frozenset(("FP16", "BF16", "FP32", "FP64"))

#: NumPy's names of the datatypes. BF16, which NumPy lacks, is read as float32, which holds its every value.
NUMPY_NAMES: Dict[str, str] = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "float32",
    "FP32": "float32",
    "FP64": "float64",
}


class TensorError(ValueError):
    """Raised for values that cannot be elements of a tensor."""


class FixedElements:
    """Elements of a fixed width, in a buffer."""

    __slots__ = ("_numbers", "buffer", "datatype")

    def __init__(self, datatype: str, buffer: memoryview) -> None:
        """Takes a contiguous `memoryview` of bytes, which is not validated."""
        self.datatype = datatype
        self.buffer = buffer
        #: The buffer as numbers, once an element has been read by its index.
        self._numbers: Optional[Sequence[Any]] = None

    def __len__(self) -> int:
        return len(self.buffer) // WIDTHS[self.datatype]

    def __getitem__(self, index: Any) -> Any:
        numbers = self._numbers
        if numbers is None:
            code = _CODES.get(self.datatype)
            numbers = self.buffer.cast(code) if code else self.tolist()  # type: ignore[call-overload]
            self._numbers = numbers
        found = numbers[index]
        return found.tolist() if isinstance(found, memoryview) else found

    def __iter__(self) -> Iterator[Any]:
        # Several times as fast as the iteration of a memoryview.
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FixedElements):
            return self.datatype == other.datatype and self.buffer == other.buffer
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} {self.datatype} elements>"

    def tolist(self) -> List[Any]:
        """Returns the elements as a list of Python's numbers."""
        if self.datatype == "FP16":
            return list(struct.unpack(f"<{len(self)}e", self.buffer))
        if self.datatype == "BF16":
            return _widened(self.buffer).tolist()
        if self.datatype == "BOOL":
            return self.buffer.cast("?").tolist()
        # Twice as fast as the conversion of a memoryview.
        numbers: array[Any] = array(_CODES[self.datatype])
        numbers.frombytes(self.buffer)
        return numbers.tolist()

    def numpy(self) -> Any:
        """Returns a flat NumPy array over the buffer. The buffer is copied only if it is read-only."""
        import numpy

        if self.datatype == "BF16":
            return numpy.frombuffer(_widened(self.buffer), numpy.float32)
        found = numpy.frombuffer(self.buffer, numpy_dtype(self.datatype))
        return found if found.flags.writeable else found.copy()

    def copy(self) -> "FixedElements":
        """Returns the elements in memory of their own."""
        return FixedElements(self.datatype, memoryview(bytearray(self.buffer)))


class BytesElements:
    """Elements of different lengths, end to end in one buffer."""

    __slots__ = ("buffer", "offsets", "text")

    datatype = "BYTES"

    def __init__(self, buffer: memoryview, offsets: memoryview, text: bool = False) -> None:
        """Takes `memoryview`s of bytes and of 32-bit offsets (format "I"), which are not validated."""
        self.buffer = buffer
        self.offsets = offsets
        self.text = text

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _at(self, index: int) -> Union[str, bytes]:
        element = self.buffer[self.offsets[index] : self.offsets[index + 1]].tobytes()
        return element.decode() if self.text else element

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._at(position) for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError("list index out of range")
        return self._at(position)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BytesElements):
            return self.text == other.text and self.tolist() == other.tolist()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} BYTES elements>"

    def tolist(self) -> List[Any]:
        """Returns the elements as a list of `str` or `bytes`."""
        offsets = self.offsets.tolist()
        spans = zip(offsets, offsets[1:])
        data = self.buffer.tobytes()
        if not self.text:
            return [data[start:end] for start, end in spans]
        if data.isascii():  # decode once, because offsets of bytes are also offsets of characters
            text = data.decode("ascii")
            return [text[start:end] for start, end in spans]
        return [data[start:end].decode() for start, end in spans]


Elements = Union[FixedElements, BytesElements]


class JsonElements:
    """The data of a tensor that its datatype cannot hold, as the UTF-8 JSON to send."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer


def nest(values: List[Any], shape: Sequence[int]) -> List[Any]:
    """Returns the elements of a tensor as lists of rows, nested by its shape."""
    if 0 in shape:
        return [] if shape[0] == 0 else [nest(values, shape[1:]) for _ in range(shape[0])]
    for size in reversed(shape[1:]):
        values = [values[start : start + size] for start in range(0, len(values), size)]
    return values


def is_array(value: Any) -> bool:
    """Returns whether `value` is a NumPy array, without importing NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


@lru_cache(maxsize=None)
def numpy_dtype(datatype: str) -> Any:
    """Returns the little-endian dtype of a datatype's arrays."""
    import numpy

    return numpy.dtype(NUMPY_NAMES[datatype]).newbyteorder("<")


def pack_output(values: Any, datatype: str) -> Union[Elements, JsonElements]:
    """Converts the data of an output as `pack` does. Data that only JSON can hold is sent as it is, as in the original.

    That is one text as the data of numbers, and `None` among the elements of BYTES.
    """
    if not (_has_none(values) if datatype == "BYTES" else isinstance(values, str)):
        return pack(values, datatype)
    from ._model import jsonable, to_json  # rarely needed

    try:
        return JsonElements(memoryview(to_json(jsonable(values)).encode()))
    except (TypeError, ValueError) as error:
        raise TensorError(f"the data cannot be sent as JSON: {error}") from error


def _has_none(values: Any) -> bool:
    if not isinstance(values, (list, tuple)):
        return False
    kinds = set(map(type, values))
    return type(None) in kinds or ((list in kinds or tuple in kinds) and any(map(_has_none, values)))


def pack(values: Any, datatype: str) -> Elements:
    """Converts `values` to elements of `datatype`.

    Accepts elements, NumPy arrays, objects with `tolist()`, single values, and lists nested to any depth, which are flattened
    row by row. `None` becomes NaN in a tensor of floats. In a BYTES tensor, values other than text and bytes become JSON.

    Raises `TensorError` with the first element that cannot be converted.
    """
    if isinstance(values, (FixedElements, BytesElements)):
        if values.datatype == datatype:
            return values
        values = values.tolist()
    if datatype == "BYTES":
        return _pack_bytes(values)
    if datatype not in WIDTHS:
        raise TensorError(f"'{datatype}' is not a datatype")
    if is_array(values) and values.dtype.kind in "biuf":
        return _pack_array(values, datatype)
    flat = values if type(values) is list else _flatten(values)
    try:
        return FixedElements(datatype, _fixed_buffer(flat, datatype))
    except (TypeError, ValueError, OverflowError, struct.error):
        # An element is nested, missing, an integer in a float, or invalid.
        flat = _flatten(flat)
    converted = [_number(value, index, datatype) for index, value in enumerate(flat)]
    try:
        return FixedElements(datatype, _fixed_buffer(converted, datatype))
    except OverflowError as error:
        raise TensorError(f"an element does not fit {datatype}: {error}") from error


def _fixed_buffer(values: List[Any], datatype: str) -> memoryview:
    if datatype == "BOOL":
        if not all(value is True or value is False for value in values):
            raise TypeError("not all are booleans")
        return memoryview(bytes(values))
    if datatype == "FP16":
        return memoryview(struct.pack(f"<{len(values)}e", *values))
    if datatype == "BF16":
        return _narrowed(array("f", values))
    return memoryview(array(_CODES[datatype], values)).cast("B")


def _number(value: Any, index: int, datatype: str) -> Any:
    """Converts one value to a number for `_fixed_buffer`."""
    try:
        if datatype in _FLOATS:
            if value is None:
                return math.nan
            converted = float(value)
            # 65520 is the smallest number that rounds beyond the largest 16-bit float.
            if datatype == "FP16" and abs(converted) >= 65520:
                return math.copysign(math.inf, converted)
            return converted
        if datatype == "BOOL":
            return bool(value)
        whole = int(value)
        if isinstance(value, float) and whole != value:
            raise ValueError("it has a fraction")
    except (TypeError, ValueError, OverflowError) as error:
        raise TensorError(f"element {index}, {value!r:.50}, is not a valid {datatype}: {error}") from error
    bits = 8 * WIDTHS[datatype]
    low, high = (0, (1 << bits) - 1) if datatype[0] == "U" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if not low <= whole <= high:
        raise TensorError(f"element {index}, {whole}, does not fit {datatype}")
    return whole


def _pack_array(values: Any, datatype: str) -> FixedElements:
    """Packs a NumPy array. It is copied, so that later changes to the array do not affect the response."""
    if datatype == "BF16":
        return FixedElements(datatype, _narrowed(array("f", values.astype("<f4").tobytes())))
    wanted = numpy_dtype(datatype)
    if values.dtype != wanted:
        values = values.astype(wanted)
    return FixedElements(datatype, memoryview(values.tobytes()))


def _pack_bytes(values: Any) -> BytesElements:
    if isinstance(values, (str, bytes, bytearray, memoryview, dict)):
        values = [values]
    elif type(values) is not list:
        values = _flatten(values)
    if values and all(type(value) is bytes for value in values):
        parts = values
    else:
        try:
            parts = [value.encode() for value in values]
        except AttributeError:
            parts = [_as_bytes(value) for value in _flatten(values)]
    try:
        offsets = array("I", accumulate(map(len, parts), initial=0))
    except OverflowError as error:
        raise TensorError("a BYTES tensor holds less than 4 GiB") from error
    return BytesElements(memoryview(b"".join(parts)), memoryview(offsets))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    from ._model import jsonable, to_json  # rarely needed

    try:
        return to_json(jsonable(value)).encode()
    except (TypeError, ValueError, json.JSONDecodeError) as error:
        raise TensorError(f"{value!r:.50} cannot be an element of a BYTES tensor: {error}") from error


def _flatten(values: Any) -> List[Any]:
    """Returns the leaves of nested lists, row by row."""
    if isinstance(values, (str, bytes, bytearray, memoryview, dict)) or values is None:
        return [values]
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Iterable):
        return [values]
    flat: List[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)) or (hasattr(value, "tolist") and not isinstance(value, memoryview)):
            flat.extend(_flatten(value))
        else:
            flat.append(value)
    return flat


def _widened(buffer: memoryview) -> "array[float]":
    """Returns BF16 elements as 32-bit floats, of which they are the upper half."""
    halves = buffer.cast("H")
    bits = array("I", (half << 16 for half in halves))
    return array("f", bits.tobytes())


def _narrowed(values: "array[float]") -> memoryview:
    """Returns 32-bit floats as BF16, rounded to nearest, ties to even."""
    bits = array("I", values.tobytes())
    # A NaN whose payload is in the lower half would round to infinity.
    halves = array(
        "H", ((b >> 16) | 0x40 if b & 0x7FFFFFFF > 0x7F800000 else (b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits)
    )
    return memoryview(halves).cast("B")
