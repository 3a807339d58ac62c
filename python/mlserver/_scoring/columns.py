"""A caller's columns and arrays as buffers in the form of tensors.

The rules are those of `mlserver infer` for Parquet, so that the answers are equal: in columns, integers of 8 and 16 bits become
32 bits wide, integers of a column with missing values become FP64 with NaN, and missing text is empty. A row fails if its
integer would lose digits or if its truth value is missing. Types that have no datatype (decimals, dates, structures) are
rejected by name.
"""

import sys
from abc import ABC, abstractmethod
from array import array
from functools import lru_cache
from itertools import accumulate
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .._tensor import WIDTHS
from ..errors import InferenceError

__all__ = ["MISSING", "ArrowColumn", "Source", "bytes_buffers", "list_column", "missing_values"]

#: What may be done with missing values: they become NaN (numbers) or empty (text), or are an error.
MISSING = ("nan", "error")

#: Integers between these are exact in FP64.
_EXACT = 1 << 53

#: Of integers of these types, columns have the wider type.
_WIDENED = {"INT8": "INT32", "INT16": "INT32", "UINT8": "UINT32", "UINT16": "UINT32"}

Buffer = Union[bytes, bytearray, memoryview]


class Source(ABC):
    """A tensor that is not encoded yet. Its first dimension are the rows."""

    #: The datatype of the protocol.
    datatype: str
    #: The shape of a row; `(1,)` for columns.
    row_shape: Tuple[int, ...] = (1,)
    #: The rows that cannot be sent, with the reason.
    invalid: Dict[int, str]

    @abstractmethod
    def __len__(self) -> int:
        """The number of rows."""

    @abstractmethod
    def row_bytes(self) -> float:
        """Returns how many bytes a row takes; of text on average."""

    @abstractmethod
    def encode(self, start: int, stop: int) -> List[Buffer]:
        """Returns the bytes of some rows, in one or more buffers, without a copy if possible."""


class ArrowColumn(Source):
    """A column of pyarrow: an `Array` or a `ChunkedArray`."""

    def __init__(self, name: str, column: Any, missing: str) -> None:
        """Raises `InferenceError` if the type has no datatype, or for missing values if these are an error."""
        import pyarrow as pa

        types = pa.types
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_null(column.type):
            column = pa.chunked_array([pa.nulls(len(column), pa.float64())])
        if missing == "error" and column.null_count:
            raise missing_values(name, column.null_count)
        self._column, self.invalid = column, {}
        self.datatype, self._type = self._target(name, column)
        if "view" in str(column.type):
            self._column = column.cast(self._type)  # pyarrow does not know the lengths of views
        if self.row_shape == (1,):
            self._find_invalid(name)

    def _target(self, name: str, column: Any) -> Tuple[str, Any]:
        """Returns the datatype, and the type of pyarrow that has its form."""
        import pyarrow as pa

        kind = column.type
        is_integer, has_nulls = pa.types.is_integer(kind), column.null_count > 0
        if is_integer and has_nulls:
            return "FP64", pa.float64()
        if is_integer or pa.types.is_floating(kind):
            datatype = _of_arrow(kind)
            wide = _WIDENED.get(datatype, datatype)
            return wide, kind if wide == datatype else pa.int32() if wide == "INT32" else pa.uint32()
        if pa.types.is_boolean(kind):
            return "BOOL", pa.uint8()
        is_view = any(getattr(pa.types, f"is_{view}", _never)(kind) for view in ("string_view", "binary_view"))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return "BYTES", pa.string()
        if is_view or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return "BYTES", pa.binary()
        if _is_list(kind):
            return self._list_target(name, column)
        raise unsupported(name, str(kind))

    def _list_target(self, name: str, column: Any) -> Tuple[str, Any]:
        """Makes lists of numbers, all of one length, a tensor of two dimensions."""
        import pyarrow as pa
        import pyarrow.compute as pc

        inner = column.type.value_type
        if not (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
            raise unsupported(name, str(column.type))
        lengths = pc.min_max(pc.list_value_length(column))
        shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
        if column.null_count or shortest != longest:
            found = "missing" if column.null_count else f"from {shortest} to {longest} long"
            raise InferenceError(f"column `{name}` has lists that are {found}: a tensor needs lists of one length")
        if any(chunk.flatten().null_count for chunk in _chunks(column)):
            raise InferenceError(f"column `{name}` has missing values inside of lists")
        self.row_shape = (longest or 0,)
        return _of_arrow(inner), inner

    def _find_invalid(self, name: str) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column
        if not column.null_count:
            return
        if self.datatype == "BOOL":
            message = f"column `{name}`: a missing value is not a valid BOOL"
            self.invalid = dict.fromkeys(pc.indices_nonzero(pc.is_null(column)).to_pylist(), message)
        elif pa.types.is_int64(column.type) or pa.types.is_uint64(column.type):
            limits = pc.min_max(column)
            if (limits["min"].as_py() or 0) >= -_EXACT and (limits["max"].as_py() or 0) <= _EXACT:
                return
            rounded = column.cast(pa.float64(), safe=False).cast(column.type, safe=False)
            rows = pc.indices_nonzero(pc.fill_null(pc.not_equal(rounded, column), False))
            for row in rows.to_pylist():
                self.invalid[row] = loses_digits(name, column[row].as_py())

    def __len__(self) -> int:
        return len(self._column)

    def row_bytes(self) -> float:
        if self.datatype != "BYTES":
            size = WIDTHS[self.datatype]
            for dimension in self.row_shape:
                size *= dimension
            return float(size)
        import pyarrow.compute as pc

        return 4 + (pc.sum(pc.binary_length(self._column)).as_py() or 0) / max(len(self._column), 1)

    def encode(self, start: int, stop: int) -> List[Buffer]:
        import pyarrow as pa

        piece = self._column.slice(start, stop - start)
        if self.datatype == "BYTES":
            return _arrow_texts(piece, self._type)
        buffers: List[Buffer] = []
        width = WIDTHS[self.datatype]
        for chunk in _chunks(piece):
            if self.row_shape != (1,) or _is_list(chunk.type):
                chunk = chunk.flatten()
            if chunk.type != self._type:
                chunk = chunk.cast(self._type, safe=False)
            if chunk.null_count:
                chunk = chunk.fill_null(float("nan") if pa.types.is_floating(self._type) else 0)
            if len(chunk):
                begin = chunk.offset * width
                buffers.append(memoryview(chunk.buffers()[1]).cast("B")[begin : begin + len(chunk) * width])
        return buffers


def _arrow_texts(piece: Any, kind: Any) -> List[Buffer]:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.concat_arrays(_chunks(piece.cast(kind))) if len(piece) else pa.array([], kind)
    if texts.null_count:
        texts = texts.fill_null("" if pa.types.is_string(kind) else b"")
    if not len(texts):
        return [bytes(4)]
    _, ends, data = texts.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, ends], offset=texts.offset)
    first, last = offsets[0].as_py(), offsets[len(texts)].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    whole = memoryview(offsets.buffers()[1]).cast("B")[offsets.offset * 4 :][: (len(texts) + 1) * 4]
    return [whole, memoryview(data).cast("B")[first:last] if data is not None else b""]


def _chunks(column: Any) -> List[Any]:
    return list(column.chunks) if hasattr(column, "chunks") else [column]


def _never(_: Any) -> bool:
    return False


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _of_arrow(kind: Any) -> str:
    """Returns the datatype of a type of numbers of pyarrow."""
    name = str(kind)
    return {"halffloat": "FP16", "half_float": "FP16", "float": "FP32", "double": "FP64"}.get(name, name.upper())


class NumpySource(Source):
    """An array of NumPy with numbers or truth values: a column, or a tensor of several dimensions."""

    def __init__(self, name: str, values: Any, missing: str, is_column: bool) -> None:
        """Raises `InferenceError` if its type has no datatype."""
        import numpy

        self.invalid = {}
        mask = None
        if isinstance(values, numpy.ma.MaskedArray):
            mask, values = numpy.ma.getmaskarray(values), values.data
        found = _of_numpy(values.dtype, is_column)
        if found is None:
            raise unsupported(name, str(values.dtype))
        if mask is not None and not mask.any():
            mask = None
        self._values = values
        self.datatype, self._dtype = found
        if is_column:
            if mask is not None:
                self._hide(name, mask.reshape(-1), missing)
        else:
            self.row_shape = values.shape[1:]
            if mask is not None:
                raise missing_values(name, int(mask.sum()))

    def _hide(self, name: str, mask: Any, missing: str) -> None:
        """Prepares a column in which values are missing."""
        import numpy

        if missing == "error":
            raise missing_values(name, int(mask.sum()))
        values = self._values.reshape(-1)
        kind = values.dtype.kind
        if kind == "b":
            message = f"column `{name}`: a missing value is not a valid BOOL"
            self.invalid = dict.fromkeys(numpy.flatnonzero(mask).tolist(), message)
            return
        if kind in "iu":
            self.datatype, self._dtype = "FP64", numpy.dtype("<f8")
            if values.dtype.itemsize == 8 and len(values):
                # Only integers beyond the limits are compared, as Python's, which are exact.
                outside = (values > _EXACT) | (values < -_EXACT) if kind == "i" else values > _EXACT
                for row in numpy.flatnonzero(outside & ~mask).tolist():
                    if int(float(values[row])) != int(values[row]):
                        self.invalid[row] = loses_digits(name, int(values[row]))
        converted = values.astype(self._dtype)
        converted[mask] = numpy.nan
        self._values = converted

    def __len__(self) -> int:
        return len(self._values)

    def row_bytes(self) -> float:
        size = self._dtype.itemsize
        for dimension in self.row_shape:
            size *= dimension
        return float(size)

    def encode(self, start: int, stop: int) -> List[Buffer]:
        piece = self._values[start:stop]
        if piece.dtype != self._dtype or not piece.flags.c_contiguous:
            import numpy

            piece = numpy.ascontiguousarray(piece, self._dtype)
        return [memoryview(piece).cast("B")] if piece.size else []


@lru_cache(maxsize=64)
def _of_numpy(dtype: Any, is_column: bool) -> Optional[Tuple[str, Any]]:
    """Returns the datatype of a NumPy type, and the type that is sent; `None` for types that models do not take."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return None
    bits = dtype.itemsize * 8
    datatype = {"b": "BOOL", "i": f"INT{bits}", "u": f"UINT{bits}", "f": f"FP{bits}"}[dtype.kind]
    wide = _WIDENED.get(datatype, datatype) if is_column else datatype
    if wide != datatype:
        import numpy

        return wide, numpy.dtype("<i4" if wide == "INT32" else "<u4")
    return datatype, dtype.newbyteorder("<")


class TextColumn(Source):
    """A list of texts or bytes."""

    datatype = "BYTES"

    def __init__(self, values: List[bytes]) -> None:
        self._values, self.invalid = values, {}

    def __len__(self) -> int:
        return len(self._values)

    def row_bytes(self) -> float:
        return 4 + sum(map(len, self._values)) / max(len(self._values), 1)

    def encode(self, start: int, stop: int) -> List[Buffer]:
        return bytes_buffers(self._values[start:stop])


class NumberColumn(Source):
    """Numbers of Python, in an array of the standard library."""

    def __init__(self, datatype: str, values: Any, invalid: Optional[Dict[int, str]] = None) -> None:
        self.datatype, self.invalid = datatype, invalid or {}
        self._bytes = memoryview(values).cast("B")
        self._width = WIDTHS[datatype]

    def __len__(self) -> int:
        return len(self._bytes) // self._width

    def row_bytes(self) -> float:
        return float(self._width)

    def encode(self, start: int, stop: int) -> List[Buffer]:
        return [self._bytes[start * self._width : stop * self._width]]


def bytes_buffers(values: Sequence[bytes]) -> List[Buffer]:
    """Returns the form of BYTES: offsets, and the elements."""
    offsets = array("I", accumulate(map(len, values), initial=0))
    return [memoryview(offsets).cast("B"), b"".join(values)]


def list_column(name: str, values: Sequence[Any], missing: str) -> Source:
    """Returns a column of Python's values: truth values, integers, floats, or text; `None` is missing.

    Raises `InferenceError` for values of other types, and for mixtures.
    """
    values = list(values)
    present = [value for value in values if value is not None]
    if missing == "error" and len(present) < len(values):
        raise missing_values(name, len(values) - len(present))
    kinds = {_kind(name, value) for value in present}
    if kinds == {"text"}:
        return TextColumn([_encoded(value) for value in values])
    if kinds == {"bool"}:
        gaps = (row for row, value in enumerate(values) if value is None)
        invalid = dict.fromkeys(gaps, f"column `{name}`: a missing value is not a valid BOOL")
        return NumberColumn("BOOL", bytes(bool(value) for value in values), invalid)
    if kinds == {"integer"} and len(present) == len(values):
        is_large = max(present) >= 1 << 63
        try:
            return NumberColumn("UINT64", array("Q", values)) if is_large else NumberColumn("INT64", array("q", values))
        except OverflowError:
            raise InferenceError(f"column `{name}` has integers that exceed 64 bits: use floats or text") from None
    if kinds <= {"integer", "float"}:
        invalid, floats = {}, array("d")
        for row, value in enumerate(values):
            try:
                number = float("nan") if value is None else float(value)
            except OverflowError:
                number = float("nan")
            if isinstance(value, int) and (number != number or int(number) != value):
                invalid[row] = loses_digits(name, value)
            floats.append(number)
        return NumberColumn("FP64", floats, invalid)
    raise InferenceError(f"column `{name}` mixes {' and '.join(sorted(kinds))} values: convert it to one type")


def _kind(name: str, value: Any) -> str:
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    # Scalars of NumPy among others.
    for base, kind in ((bool, "bool"), (int, "integer"), (float, "float"), ((str, bytes, bytearray), "text")):
        if isinstance(value, base):
            return kind
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return {"b": "bool", "i": "integer", "u": "integer", "f": "float"}[value.dtype.kind]
    raise unsupported(name, type(value).__name__)


_KINDS = {bool: "bool", int: "integer", float: "float", str: "text", bytes: "text"}


def _encoded(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)


def loses_digits(name: str, value: int) -> str:
    """Returns the reason why a row fails whose integer has no exact place in FP64."""
    return (
        f"column `{name}`: `{value}` would lose digits as FP64, the datatype of integers that may be missing; fill the missing"
        " values, or convert the column to text"
    )


def missing_values(name: str, count: int) -> InferenceError:
    """Returns the error for a column in which values are missing if they must not be."""
    return InferenceError(f"column `{name}` has {count} missing values: fill them, or set missing='nan'")


def unsupported(name: str, kind: str) -> InferenceError:
    """Returns the error for a column whose type has no datatype."""
    return InferenceError(
        f"column `{name}` is {kind}, which models do not take: convert it to numbers, text or booleans"
    )
