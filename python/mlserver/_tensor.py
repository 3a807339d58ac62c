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
as the parsed value, and `pack_output` returns its JSON, alone or beside the elements.

`mlserver._payload` builds requests from elements, and converts responses to elements.
"""

import math
import struct
import sys
from array import array
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

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


class NullableElements(FixedElements):
    """Floats that are shown as `None` where they are not a number, as in JSON."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _without_nan(found) if isinstance(found, list) else None if found != found else found

    def tolist(self) -> List[Any]:
        return _without_nan(super().tolist())

    def copy(self) -> "NullableElements":
        return NullableElements(self.datatype, memoryview(bytearray(self.buffer)))


def _without_nan(numbers: List[Any]) -> List[Any]:
    return [None if number != number else number for number in numbers]


class DoubleElements(FixedElements):
    """Elements of a shorter float, in double precision: as numbers in JSON have it, and Python's `float`."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.buffer) // 8

    def __getitem__(self, index: Any) -> Any:
        found = self.buffer.cast("d")[index]
        return found.tolist() if isinstance(found, memoryview) else found

    def tolist(self) -> List[Any]:
        numbers: array[Any] = array("d")
        numbers.frombytes(self.buffer)
        return numbers.tolist()

    def doubles(self) -> Any:
        """Returns a flat NumPy array of 64-bit floats over the buffer, which is copied only if it is read-only."""
        return FixedElements("FP64", self.buffer).numpy()

    def numpy(self) -> Any:
        """Returns a flat NumPy array of the datatype."""
        import numpy

        return numpy.frombuffer(self.buffer, numpy.float64).astype(numpy_dtype(self.datatype))

    def copy(self) -> "DoubleElements":
        return DoubleElements(self.datatype, memoryview(bytearray(self.buffer)))

    def rounded(self) -> FixedElements:
        """Returns the elements with the precision of the datatype."""
        return FixedElements(self.datatype, _fixed_buffer(self.tolist(), self.datatype))


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


class PackedOutput(NamedTuple):
    """The data of an output, in the forms in which it is sent."""

    #: The elements of the regular form, which binary responses, gRPC and batches need; `None` if there is none.
    elements: Optional[Elements]
    #: Whether the lists are nested as in the shape.
    nested: bool = False
    #: The data as the model gave it, in UTF-8 JSON, if the regular form would change it.
    sent: Optional[bytes] = None
    #: Why there is no regular form.
    reason: str = ""


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


def pack_output(data: Any, datatype: str, shape: Sequence[int]) -> PackedOutput:
    """Packs the data of an output: any value, or elements.

    Over REST, clients receive the data as the model gave it, even if it does not suit the datatype and the shape. Raises
    `TensorError` for data that JSON cannot hold either.
    """
    values = data
    if isinstance(values, (FixedElements, BytesElements)) and values.datatype == datatype:
        is_regular = math.prod(shape) == len(values) and min(shape, default=0) >= 0
        if is_regular:
            return PackedOutput(pack(values, datatype))
    if is_array(values):
        values = _suitable_array(values, datatype)
    elif hasattr(values, "tolist") and not isinstance(values, (FixedElements, BytesElements, memoryview)):
        values = values.tolist()
    if isinstance(values, tuple):
        values = list(values)
    if isinstance(values, (FixedElements, BytesElements)) or is_array(values):
        elements = pack(values, datatype)
        return PackedOutput(elements) if _fits(elements, shape) else _irregular(values.tolist(), elements, shape)
    nested = type(values) is list and len(values) > 0 and isinstance(values[0], (list, tuple))
    leaves = _rows(values, shape) if nested else values
    if type(leaves) is list and (not nested or leaves):
        packed = _pack_plain(leaves, datatype)
        if packed is not None and _fits(packed, shape):
            return PackedOutput(packed, nested)
    try:
        elements = pack(values, datatype)
        _check_converted(values, elements)
        return _irregular(values, elements, shape)
    except (TensorError, TypeError, ValueError) as error:
        return PackedOutput(None, False, _as_json(values), str(error))


def is_plain(data: Any, datatype: str, shape: List[int]) -> bool:
    """Returns whether the data of an output is elements of its datatype and shape, which are sent as they are."""
    return (
        type(data) in _PLAIN_ELEMENTS
        and data.datatype == datatype
        and math.prod(shape) * WIDTHS[datatype] == len(data.buffer)
        and (not shape or min(shape) >= 0)
    )


def plain_output(elements: Elements) -> PackedOutput:
    """Does what `PackedOutput(elements)` does, in half the time."""
    return tuple.__new__(PackedOutput, (elements, False, None, ""))


#: The types of elements that have the width of their datatype.
_PLAIN_ELEMENTS = frozenset((FixedElements, NullableElements))


def resolved_shape(shape: Sequence[int], count: int) -> Optional[List[int]]:
    """Returns a shape with its only `-1` resolved as by NumPy, or `None` if it does not have `count` elements."""
    if -1 not in shape:
        return list(shape) if math.prod(shape) == count and min(shape, default=0) >= 0 else None
    known = math.prod(dimension for dimension in shape if dimension != -1)
    if shape.count(-1) != 1 or known <= 0 or min(shape) < -1 or count % known:
        return None
    return [count // known if dimension == -1 else dimension for dimension in shape]


def _fits(elements: Elements, shape: Sequence[int]) -> bool:
    return resolved_shape(shape, len(elements)) is not None


def _check_converted(values: Any, elements: Elements) -> None:
    """Raises `TensorError` if elements are other values than those that they were converted from."""
    flat, datatype = _flatten(values), elements.datatype
    if datatype == "BYTES" and None in flat:
        raise TensorError(f"element {flat.index(None)} is None, which is neither text nor bytes")
    if datatype == "BOOL":
        for index, value in enumerate(flat):
            if value not in (0, 1):
                raise TensorError(f"element {index}, {value!r:.50}, is neither true nor false")
    if datatype in _NARROW and _has_infinity(elements) and _is_rounded_to_infinity(elements, flat):
        raise TensorError(f"a number is beyond the range of {datatype}")


def _irregular(values: Any, elements: Elements, shape: Sequence[int]) -> PackedOutput:
    """Returns data that only JSON holds as it is, with the elements of its regular form if they fit the shape."""
    # One text may have any shape: the original's manual answers with the length of a document as its shape.
    is_one_text = elements.datatype == "BYTES" and len(elements) == 1 and min(shape, default=0) >= 0
    if is_one_text or _fits(elements, shape):
        return PackedOutput(elements, False, _as_json(values))
    reason = f"its shape {list(shape)} cannot hold {len(elements)} elements"
    return PackedOutput(None, False, _as_json(values), reason)


def _as_json(values: Any) -> bytes:
    from ._dump import dumped_json, to_json  # rarely needed

    try:
        return to_json(dumped_json(values)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TensorError(f"the data cannot be sent as JSON: {error}") from error


def _rows(values: List[Any], shape: Sequence[int]) -> Optional[List[Any]]:
    """Returns the elements of nested lists, row by row, or `None` if the lists are not nested as in the shape."""
    level = [values]
    for size in shape:
        for rows in level:
            if not isinstance(rows, (list, tuple)) or len(rows) != size:
                return _open_rows(values, shape) if -1 in shape else None
        level = list(chain.from_iterable(level))
    return level


def _open_rows(values: List[Any], shape: Sequence[int]) -> Optional[List[Any]]:
    """Does the same for a shape with open dimensions, which the first list of each level determines."""
    found: List[int] = []
    level: Any = values
    for size in shape:
        if not isinstance(level, (list, tuple)) or not level or (size >= 0 and size != len(level)):
            return None
        found.append(len(level))
        level = level[0]
    return _rows(values, found)


#: The types of elements that a datatype holds as they are.
_PLAIN_KINDS: Dict[str, "frozenset[Any]"] = {
    "BOOL": frozenset((bool,)),
    "BYTES": frozenset((str, bytes)),
    **dict.fromkeys(_FLOATS, frozenset((float, int, type(None)))),
}
_WHOLE = frozenset((int,))


def _pack_plain(values: List[Any], datatype: str) -> Optional[Elements]:
    """Packs a flat list, or returns `None` if the elements would change."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_KINDS.get(datatype, _WHOLE) and not _are_numpy_scalars(kinds):
        return None
    try:
        packed = pack(values, datatype)
    except (TensorError, TypeError, ValueError):
        return None
    if datatype in _NARROW and _has_infinity(packed) and _is_rounded_to_infinity(packed, values):
        return None
    return packed


def _are_numpy_scalars(kinds: "set[Any]") -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and all(issubclass(kind, numpy.generic) for kind in kinds)


#: The bytes of the infinities of narrow floats.
_NARROW: Dict[str, Tuple[bytes, bytes]] = {
    "FP16": (b"\x00\x7c", b"\x00\xfc"),
    "BF16": (b"\x80\x7f", b"\x80\xff"),
    "FP32": (b"\x00\x00\x80\x7f", b"\x00\x00\x80\xff"),
}


def _has_infinity(packed: Any) -> bool:
    """Returns whether an element is infinite, or probably. None of the ways looks at each element in Python."""
    if "numpy" in sys.modules:
        import numpy

        return bool(numpy.isinf(packed.numpy()).any())
    content = packed.buffer.tobytes()
    return any(infinity in content for infinity in _NARROW[packed.datatype])


def _is_rounded_to_infinity(packed: Any, values: List[Any]) -> bool:
    """Returns whether a number beyond the range of the datatype has become infinite."""
    pairs = zip(packed.tolist(), values)
    return any(math.isinf(element) and value is not None and math.isfinite(float(value)) for element, value in pairs)


def _suitable_array(values: Any, datatype: str) -> Any:
    """Returns an array whose elements the datatype holds, or else its elements as a list."""
    import numpy

    if isinstance(values, numpy.ma.MaskedArray) or values.dtype.kind not in "biuf" or datatype not in WIDTHS:
        return values.tolist()
    wanted = numpy_dtype(datatype)
    if datatype == "BF16" or values.dtype == wanted or numpy.can_cast(values.dtype, wanted, "safe"):
        return values
    with numpy.errstate(all="ignore"):
        cast = values.astype(wanted)
    if wanted.kind == "f":
        held = numpy.array_equal(numpy.isfinite(cast), numpy.isfinite(values))
    else:
        held = bool((cast == values).all())
    return cast if held else values.tolist()


def pack(values: Any, datatype: str) -> Elements:
    """Converts `values` to elements of `datatype`.

    Accepts elements, NumPy arrays, objects with `tolist()`, single values, and lists nested to any depth, which are flattened
    row by row. `None` becomes NaN in a tensor of floats. In a BYTES tensor, values other than text and bytes become JSON.

    Raises `TensorError` with the first element that cannot be converted.
    """
    if isinstance(values, (FixedElements, BytesElements)):
        if isinstance(values, DoubleElements):
            values = values.rounded()
        if values.datatype == datatype:
            return values  # type: ignore[no-any-return]
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
    from ._dump import dumped_json, to_json  # rarely needed

    try:
        return to_json(dumped_json(value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
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
