"""Answers of batches, assembled in memory of the caller, as values of its library."""

from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from .._tensor import NUMPY_NAMES, WIDTHS, BytesElements, FixedElements, nest
from ..errors import InferenceError

__all__ = ["AssembledOutput", "OutputPart", "Predictions", "arrow_type", "read_outputs"]

Buffer = Union[bytes, bytearray, memoryview]

#: The most columns that an output may become in pandas.
_MAX_COLUMNS = 10_000


class OutputPart(NamedTuple):
    """An output of one answer. Its buffer is only valid until the region of the call is given back."""

    name: str
    datatype: str
    shape: Tuple[int, ...]
    #: The elements; of BYTES after their offsets.
    data: memoryview
    #: Of BYTES: `count + 1` offsets.
    offsets: memoryview


def read_outputs(head: Dict[str, Any], tail: Buffer, region: Any) -> List[OutputPart]:
    """Returns the outputs of an answer. `region` is that of the call, or `None`.

    Raises `InferenceError` for data without a regular form, and for bytes outside of the region and the tail.
    """
    parts = []
    at, tail_view = 0, memoryview(tail)
    for output in head.get("outputs") or []:
        name, size = output["name"], output["size"]
        if output.get("json"):
            reason = output.get("reason") or "it does not match its shape"
            raise InferenceError(f"output `{name}` of the model has no regular form: {reason}")
        offset = output.get("offset")
        if offset is None:
            data = tail_view[at : at + size]
            at += -(-size // 8) * 8
            at += -(-output.get("sent", 0) // 8) * 8
        else:
            start = offset - region.offset if region is not None else -1
            if start < 0 or start + size > region.size:
                raise InferenceError(f"output `{name}` is outside of the memory of its call")
            data = region.view[start : start + size]
        if len(data) != size:
            raise InferenceError(f"output `{name}` exceeds its frame by {size - len(data)} bytes")
        split = 4 * (output["count"] + 1) if output["datatype"] == "BYTES" else 0
        parts.append(OutputPart(name, output["datatype"], tuple(output["shape"]), data[split:], data[:split].cast("I")))
    return parts


class AssembledOutput:
    """An output of all rows of a call."""

    def __init__(self, first: OutputPart, rows: int, batch_rows: int) -> None:
        self.name, self.datatype = first.name, first.datatype
        #: Whether there is one element, or one array, for each row.
        self.has_rows = len(first.shape) > 0 and first.shape[0] == batch_rows
        self.row_shape = first.shape[1:] if self.has_rows else first.shape
        self.rows = rows if self.has_rows else 1
        self._width = 1
        for size in self.row_shape:
            self._width *= max(size, 0)
        row_bytes = self._width * WIDTHS.get(self.datatype, 0)
        self._data = bytearray(row_bytes * self.rows)
        self._texts: Dict[int, Tuple[bytes, bytes]] = {}
        self._row_bytes = row_bytes

    def add(self, part: OutputPart, start: int, stop: int) -> None:
        """Copies the output of the rows from `start` to `stop`. Raises `InferenceError` if it differs from those before."""
        expected = (stop - start, *self.row_shape) if self.has_rows else self.row_shape
        if part.name != self.name or part.datatype != self.datatype or part.shape != expected:
            raise InferenceError(
                f"output `{part.name}` is {part.datatype} {list(part.shape)}, but `{self.name}` of other rows of this call is"
                f" {self.datatype} {list(expected)}"
            )
        if not self.has_rows:
            start, stop = 0, 1
        if self.datatype == "BYTES":
            self._texts[start] = bytes(part.offsets.cast("B")), bytes(part.data)
            return
        if len(part.data) != self._row_bytes * (stop - start):
            raise InferenceError(
                f"output `{part.name}` has {len(part.data)} bytes, which is not its shape {list(part.shape)}"
            )
        self._data[start * self._row_bytes : stop * self._row_bytes] = part.data

    def numpy(self) -> Any:
        """Returns an array of shape `[rows, ...]`, of `[rows]` if there is one element in each row."""
        import numpy

        shape = self._shape()
        if self.datatype == "BYTES":
            values: Any = numpy.empty(self._count(), object)
            values[:] = self._elements()
        else:
            values = FixedElements(self.datatype, memoryview(self._data)).numpy()
        return values.reshape(shape)

    def tolist(self) -> List[Any]:
        """Returns a list of rows: of elements, or of lists."""
        if self.datatype == "BYTES":
            return nest(self._elements(), self._shape())
        return nest(FixedElements(self.datatype, memoryview(self._data)).tolist(), self._shape())

    def arrow(self, failed: Sequence[int] = ()) -> Any:
        """Returns an array of pyarrow with nulls in the rows that failed; of lists if rows have several elements.

        Raises `InferenceError` for BYTES that are not UTF-8.
        """
        import pyarrow as pa

        count = self._count()
        valid = _bitmap(self.rows, failed)
        if self.datatype == "BYTES":
            values = self._arrow_texts()
        else:
            datatype, data = self.datatype, memoryview(self._data)
            if datatype == "BF16":
                datatype, data = "FP32", memoryview(_doubled(data))
            flat = valid if self._is_flat else None
            raw = "UINT8" if datatype == "BOOL" else datatype
            values = pa.Array.from_buffers(_plain_type(raw), count, [flat, pa.py_buffer(data)])
            kind = arrow_type(datatype, ())
            values = values if values.type == kind else values.cast(kind)
        if self._is_flat:
            return values
        if count >= 1 << 31:
            raise InferenceError(
                f"output `{self.name}` has {count} elements: pyarrow's lists hold 2^31, so pass fewer rows"
            )
        offsets = (
            array("i", range(0, count + 1, self._width)) if self._width else array("i", bytes(4 * (self.rows + 1)))
        )
        return pa.Array.from_buffers(
            pa.list_(values.type), self.rows, [valid, pa.py_buffer(offsets)], children=[values]
        )

    @property
    def _is_flat(self) -> bool:
        return self.row_shape in ((), (1,))

    def _count(self) -> int:
        return self.rows * self._width

    def _shape(self) -> Tuple[int, ...]:
        if not self.has_rows:
            return self.row_shape
        return (self.rows,) if self._is_flat else (self.rows, *self.row_shape)

    def _elements(self) -> List[Any]:
        found: List[Any] = []
        for start, (offsets, data) in sorted(self._texts.items()):
            found.extend([b""] * (start * self._width - len(found)))
            elements = BytesElements(memoryview(data), memoryview(offsets).cast("I"))
            try:
                elements.text = True
                found.extend(elements.tolist())
            except UnicodeDecodeError:
                elements.text = False
                found.extend(elements.tolist())
        found.extend([b""] * (self._count() - len(found)))
        return found

    def _arrow_texts(self) -> Any:
        import pyarrow as pa

        kind, arrays, row = pa.string(), [], 0
        for start, (offsets, data) in sorted(self._texts.items()):
            if start > row:
                arrays.append(pa.nulls((start - row) * self._width, kind))
            count = len(offsets) // 4 - 1
            arrays.append(pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]))
            row = start + count // max(self._width, 1)
        if row < self.rows:
            arrays.append(pa.nulls((self.rows - row) * self._width, kind))
        try:
            values = pa.concat_arrays(arrays) if arrays else pa.array([], kind)
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InferenceError(f"output `{self.name}` has no text that pyarrow can hold: {error}") from None
        return values


class Predictions:
    """The outputs of a call, and the rows that failed."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.outputs: List[AssembledOutput] = []
        self.failed: Dict[int, str] = {}

    def add(self, parts: List[OutputPart], start: int, stop: int) -> None:
        """Adds the answer to the rows from `start` to `stop`."""
        if not self.outputs:
            self.outputs = [AssembledOutput(part, self.rows, stop - start) for part in parts]
            for output in self.outputs:
                if not output.has_rows and stop - start != self.rows:
                    self.outputs = []
                    raise _rows_differ(parts, stop - start)
        if len(parts) != len(self.outputs):
            raise InferenceError(f"the model answered with {len(parts)} outputs, but with {len(self.outputs)} before")
        for output, part in zip(self.outputs, parts):
            output.add(part, start, stop)

    def like_array(self) -> Any:
        """Returns an array of NumPy, or a dictionary of them if there are several outputs."""
        if len(self.outputs) == 1:
            return self.outputs[0].numpy()
        return self.as_arrays()

    def as_arrays(self) -> Dict[str, Any]:
        """Returns an array of NumPy for each output."""
        return {output.name: output.numpy() for output in self.outputs}

    def as_lists(self) -> Dict[str, Any]:
        """Returns a list for each output."""
        return {output.name: output.tolist() for output in self.outputs}

    def as_frame(self, index: Any) -> Any:
        """Returns a `DataFrame` of pandas with a column for each element of a row: `name`, or `name[0]`, `name[1]`, ...

        Raises `InferenceError` if an output has no rows, or too many columns.
        """
        import pandas

        columns: Dict[str, Any] = {}
        for output in self._with_rows():
            values = output.numpy()
            if values.ndim == 1:
                columns[output.name] = values
                continue
            values = values.reshape(self.rows, -1) if self.rows else values.reshape(0, _width(output.row_shape))
            if len(columns) + values.shape[1] > _MAX_COLUMNS:
                raise InferenceError(
                    f"output `{output.name}` has {values.shape[1]} columns: a table has {_MAX_COLUMNS} at most"
                )
            columns.update((f"{output.name}[{place}]", values[:, place]) for place in range(values.shape[1]))
        return pandas.DataFrame(columns, index=index)

    def as_arrow(self) -> Dict[str, Any]:
        """Returns an array of pyarrow for each output."""
        failed = sorted(self.failed)
        return {output.name: output.arrow(failed) for output in self._with_rows()}

    def _with_rows(self) -> List[AssembledOutput]:
        for output in self.outputs:
            if not output.has_rows and self.rows:
                raise InferenceError(
                    f"output `{output.name}` has the shape {list(output.row_shape)}, not one row for each of the {self.rows}"
                    " rows: pass arrays of NumPy to get it as it is"
                )
        return self.outputs


def _rows_differ(parts: List[OutputPart], rows: int) -> InferenceError:
    shapes = ", ".join(f"`{part.name}` {list(part.shape)}" for part in parts)
    return InferenceError(f"the model's outputs ({shapes}) do not have one row for each of the {rows} rows of a batch")


def _width(shape: Sequence[int]) -> int:
    width = 1
    for size in shape:
        width *= size
    return width


def _doubled(halves: memoryview) -> bytearray:
    """Returns BF16 numbers as FP32, which has the same upper half."""
    wide = bytearray(2 * len(halves))
    wide[2::4], wide[3::4] = halves[0::2], halves[1::2]
    return wide


def _bitmap(rows: int, failed: Sequence[int]) -> Optional[Any]:
    """Returns pyarrow's validity of rows, `None` if all are valid."""
    if not failed:
        return None
    import pyarrow as pa

    bits = bytearray(b"\xff" * (rows // 8 + 1))
    for row in failed:
        bits[row // 8] &= ~(1 << row % 8) & 0xFF
    return pa.py_buffer(bits)


def _plain_type(datatype: str) -> Any:
    import pyarrow as pa

    return getattr(pa, NUMPY_NAMES[datatype])()


def arrow_type(datatype: str, row_shape: Sequence[int]) -> Any:
    """Returns the type of pyarrow that an output of a datatype and a shape of its rows has."""
    import pyarrow as pa

    if datatype == "BYTES":
        kind = pa.string()
    elif datatype == "BOOL":
        kind = pa.bool_()
    elif datatype in ("FP16", "BF16"):
        kind = pa.float32()  # which holds all of their values, and which engines know
    else:
        kind = _plain_type(datatype)
    return kind if tuple(row_shape) in ((), (1,)) else pa.list_(kind)
