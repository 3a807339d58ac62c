"""The data that callers pass: tables of pandas, pyarrow and dictionaries, and arrays of NumPy."""

import sys
from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from typing import Any, Dict, FrozenSet, List, Optional, Sequence

from ..errors import InferenceError
from .columns import ArrowColumn, NumpySource, Source, TextColumn, list_column, missing_values, unsupported

__all__ = ["ArrayInput", "ArrowTable", "DictTable", "PandasTable", "Table", "read_input"]


class Table(ABC):
    """Columns by name."""

    #: The names of the columns, in order.
    names: List[str]
    #: The number of rows.
    rows: int
    missing: str

    @cached_property
    def _repeated(self) -> FrozenSet[str]:
        """The names of several columns."""
        return frozenset(name for name, count in Counter(self.names).items() if count > 1)

    def column(self, name: str) -> Source:
        """Returns a column. Raises `InferenceError` if it occurs twice or its type has no datatype."""
        if name in self._repeated:
            raise InferenceError(f"there are two columns `{name}`: rename or remove one of them")
        found = self._column(name)
        if len(found) != self.rows:
            raise InferenceError(f"column `{name}` has {len(found)} rows, but the first column has {self.rows}")
        return found

    @abstractmethod
    def _column(self, name: str) -> Source:
        """Returns a column whose name occurs once."""


class ArrowTable(Table):
    """A `Table` or `RecordBatch` of pyarrow."""

    def __init__(self, data: Any, missing: str) -> None:
        self.data, self.missing = data, missing
        self.names, self.rows = list(data.schema.names), data.num_rows

    def _column(self, name: str) -> Source:
        return ArrowColumn(name, self.data.column(self.names.index(name)), self.missing)


class PandasTable(Table):
    """A `DataFrame` of pandas."""

    def __init__(self, data: Any, missing: str) -> None:
        self.data, self.missing = data, missing
        self.names, self.rows = [str(name) for name in data.columns], len(data)
        # A series by its label takes half the time of one by its place, or less.
        self._labels = dict(zip(self.names, data.columns))

    def _column(self, name: str) -> Source:
        return series_column(name, self.data[self._labels[name]], self.missing)


class DictTable(Table):
    """A dictionary of columns: arrays of NumPy or pyarrow, series of pandas, or lists."""

    def __init__(self, data: Dict[Any, Any], missing: str) -> None:
        if not data:
            raise InferenceError("the dictionary has no columns")
        self._data, self.missing = {str(name): values for name, values in data.items()}, missing
        self.names = list(self._data)
        self.rows = len(self._data[self.names[0]])

    @cached_property
    def has_tensors(self) -> bool:
        """Whether some values are arrays of several dimensions, and so not columns."""
        array = _class_of("numpy", "ndarray")
        return array is not None and any(isinstance(each, array) and each.ndim > 1 for each in self._data.values())

    def tensor(self, name: str) -> Source:
        """Returns an array as it is."""
        values = self._data[name]
        if _is_of("numpy", "ndarray", values) and values.ndim > 1:
            return NumpySource(name, values, self.missing, is_column=False)
        source = self.column(name)
        source.row_shape = ()
        return source

    def _column(self, name: str) -> Source:
        values = self._data[name]
        # First, since calls with one row are mostly made of such.
        if _is_of("numpy", "ndarray", values):
            return array_column(name, values, self.missing)
        if _is_of("pyarrow", "Array", values) or _is_of("pyarrow", "ChunkedArray", values):
            return ArrowColumn(name, values, self.missing)
        if _is_of("pandas", "Series", values):
            return series_column(name, values, self.missing)
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
            raise unsupported(name, type(values).__name__)
        return list_column(name, values, self.missing)


class ArrayInput:
    """An array of NumPy, which is one tensor."""

    def __init__(self, data: Any, missing: str) -> None:
        if data.ndim == 0:
            raise InferenceError("the array has no dimensions: pass one whose first dimension are the rows")
        if data.dtype.names:
            raise InferenceError("the array has fields: pass a dictionary of arrays, or a table")
        self.rows = len(data)
        self._data, self._missing = data, missing

    def source(self) -> Source:
        """Returns the tensor."""
        if self._data.dtype.kind in "biuf":
            return NumpySource("input-0", self._data, self._missing, is_column=False)
        texts = array_column("input-0", self._data.reshape(-1), self._missing)
        return _ReshapedText(texts, self._data.shape)


class _ReshapedText(Source):
    """Texts as a tensor of several dimensions."""

    datatype = "BYTES"

    def __init__(self, texts: Source, shape: Sequence[int]) -> None:
        self._texts, self.invalid = texts, {}
        self._rows, self.row_shape = shape[0], tuple(shape[1:])
        self._width = 1
        for size in self.row_shape:
            self._width *= size

    def __len__(self) -> int:
        return self._rows

    def row_bytes(self) -> float:
        return self._texts.row_bytes() * self._width

    def encode(self, start: int, stop: int) -> List[Any]:
        return self._texts.encode(start * self._width, stop * self._width)


def read_input(data: Any, missing: str) -> Any:
    """Returns a `Table` or an `ArrayInput`. Raises `InferenceError` for data of another type."""
    if _is_of("pyarrow", "Table", data) or _is_of("pyarrow", "RecordBatch", data):
        return ArrowTable(data, missing)
    if _is_of("pandas", "DataFrame", data):
        return PandasTable(data, missing)
    if _is_of("numpy", "ndarray", data):
        return ArrayInput(data, missing)
    if isinstance(data, dict):
        return DictTable(data, missing)
    raise InferenceError(
        f"cannot predict {type(data).__module__}.{type(data).__qualname__}: pass a DataFrame of pandas, a Table or RecordBatch"
        " of pyarrow, an array of NumPy, or a dictionary of columns"
    )


def _is_of(library: str, name: str, value: Any) -> bool:
    """Reports whether a value is of a class of a library, without importing it."""
    found = _class_of(library, name)
    return found is not None and isinstance(value, found)


def _class_of(library: str, name: str) -> Any:
    """Returns a class of a library, `None` if the library has not been imported."""
    return getattr(sys.modules.get(library), name, None)


def array_column(name: str, values: Any, missing: str) -> Source:
    """Returns a column of an array of NumPy with one dimension, or with a second one of size 1."""
    if values.ndim != 1 and values.shape[1:] != (1,):
        raise InferenceError(f"column `{name}` has the shape {list(values.shape)}: a column has one dimension")
    if values.ndim != 1:
        values = values.reshape(-1)
    kind = values.dtype.kind
    if kind in "biuf":
        return NumpySource(name, values, missing, is_column=True)
    if kind == "U":
        return TextColumn([text.encode() for text in values.tolist()])
    if kind == "S":
        return TextColumn(values.tolist())
    if kind == "O":
        return list_column(name, [None if _is_missing(value) else value for value in values.tolist()], missing)
    raise unsupported(name, str(values.dtype))


def _is_missing(value: Any) -> bool:
    """Reports whether a value among objects is missing: `None`, NaN, or pandas' NA."""
    if value is None or (isinstance(value, float) and value != value):
        return True
    pandas = sys.modules.get("pandas")
    return pandas is not None and value is getattr(pandas, "NA", None)


def series_column(name: str, series: Any, missing: str) -> Source:
    """Returns a column of a series of pandas."""
    import numpy

    dtype = series.dtype
    if isinstance(dtype, numpy.dtype):
        values = series.to_numpy()
        if missing == "error" and dtype.kind == "f":
            count = int(numpy.isnan(values).sum())
            if count:
                raise missing_values(name, count)
        return array_column(name, values, missing)
    if type(dtype).__name__ == "CategoricalDtype":
        return series_column(name, series.astype(_of_categories(series)), missing)
    if type(dtype).__name__ == "ArrowDtype":
        return ArrowColumn(name, series.array.__arrow_array__(), missing)
    kind: Optional[str] = getattr(dtype, "kind", None)
    if kind in ("b", "i", "u", "f") and hasattr(series.array, "_mask"):
        mask = series.isna().to_numpy()
        values = series.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return NumpySource(name, numpy.ma.MaskedArray(values, mask), missing, is_column=True)
    if getattr(dtype, "name", "") in ("string", "str") or "string" in str(dtype):
        return array_column(name, series.to_numpy(dtype=object), missing)
    raise unsupported(name, str(dtype))


def _of_categories(series: Any) -> Any:
    """Returns the type of the values of a categorical series; of integers with missing values, pandas' own."""
    dtype = series.cat.categories.dtype
    if getattr(dtype, "kind", "") in ("i", "u") and series.isna().any():
        return {"i": "Int64", "u": "UInt64"}[dtype.kind]
    if getattr(dtype, "kind", "") == "b" and series.isna().any():
        return "boolean"
    return dtype
