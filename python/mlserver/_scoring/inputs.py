"""Which columns become which inputs of a model."""

from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, Union

from ..errors import InferenceError
from .columns import Source
from .tables import ArrayInput, DictTable, Table

__all__ = ["LoadedModel", "NamedSource", "RequestPlan", "chosen", "only_column", "plan"]

#: What `mlserver infer` sends with the columns of a table.
_FRAME = {"content_type": "pd", "named_columns": True}
#: The most names in a message.
_MAX_NAMES = 20


class LoadedModel:
    """What the child says about the model."""

    def __init__(self, loaded: Dict[str, Any]) -> None:
        metadata = loaded.get("metadata") or {}
        self.name: str = loaded.get("name") or ""
        self.inputs: List[Dict[str, Any]] = metadata.get("inputs") or []
        self.outputs: List[Dict[str, Any]] = metadata.get("outputs") or []
        #: Whether rows of a request may be split into several requests.
        self.is_batched: bool = loaded.get("batches", False)
        #: Whether the model is evaluated without Python.
        self.is_native: bool = (metadata.get("parameters") or {}).get("backend") == "native"
        #: The names of the features, if the model has some.
        self.features: Optional[List[str]] = _features(loaded)
        #: The size of a row by the file of the model, 0 if it is not known.
        self._width: int = loaded.get("width") or 0
        #: The features that the model does not read.
        self.unread: FrozenSet[str] = frozenset(loaded.get("unread_features") or ())

    @property
    def column_names(self) -> Optional[List[str]]:
        """The names of the columns that the model takes, if it declares them."""
        if self.features is not None:
            return self.features
        if len(self.inputs) > 1 or (self.inputs and not self.is_matrix):
            return [declared["name"] for declared in self.inputs]
        return None

    @property
    def width(self) -> Optional[int]:
        """How many elements a row has, if the model declares it."""
        if self.features is not None:
            return len(self.features)
        shape = self.inputs[0].get("shape") or [] if len(self.inputs) == 1 else [0, self._width]
        return int(shape[1]) if len(shape) == 2 and shape[1] > 0 else None

    @property
    def is_matrix(self) -> bool:
        """Whether the model declares one input of several columns, without their names."""
        if self.features is not None or len(self.inputs) != 1:
            return False
        shape = self.inputs[0].get("shape") or []
        return len(shape) == 2 and shape[1] != 1


class NamedSource(NamedTuple):
    """A tensor of a request that is not encoded yet."""

    name: str
    source: Source
    is_text: bool


class RequestPlan(NamedTuple):
    """The tensors of the rows of a call, and the parameters of its requests."""

    rows: int
    tensors: List[NamedSource]
    parameters: Optional[Dict[str, Any]]
    #: The rows that cannot be sent, with the reason.
    invalid: Dict[int, str]


def plan(model: LoadedModel, data: Union[Table, ArrayInput], columns: Optional[Sequence[str]]) -> RequestPlan:
    """Finds the inputs of a model in a caller's data.

    `columns` names the caller's columns in the order of the features. Otherwise they are found by the names of the features; if
    the model declares none, all columns are sent. A single column of lists has all features. Raises `InferenceError` if a
    column is missing or has an unsupported type.
    """
    if isinstance(data, ArrayInput):
        name = model.inputs[0]["name"] if len(model.inputs) == 1 else "input-0"
        source = data.source()
        return RequestPlan(data.rows, [NamedSource(name, source, source.datatype == "BYTES")], None, {})
    only = None if model.is_matrix else only_column(data.names, columns)
    if only is not None:
        source = data.tensor(only) if isinstance(data, DictTable) and data.has_tensors else data.column(only)
        if len(source.row_shape) == 1 and source.row_shape != (1,):
            name = model.inputs[0]["name"] if len(model.inputs) == 1 else only
            return RequestPlan(data.rows, [NamedSource(name, source, False)], None, source.invalid)
    if isinstance(data, DictTable) and data.has_tensors:
        named = [NamedSource(name, data.tensor(name), False) for name, _ in chosen(model, data.names, columns)]
        return RequestPlan(data.rows, named, None, _invalid(named))
    sources = [(name, data.column(column)) for column, name in chosen(model, data.names, columns)]
    named = [NamedSource(name, source, source.datatype == "BYTES") for name, source in sources]
    if model.is_matrix:
        declared = model.inputs[0]
        stacked = named[0] if len(named) == 1 and named[0].source.row_shape != (1,) else None
        source = stacked.source if stacked else StackedColumns([each.source for each in named])
        wide = declared["shape"][1]
        if wide > 0 and source.row_shape != (wide,):
            raise InferenceError(
                f"there are {len(named)} columns, but the model expects {wide}: choose them with `columns`"
            )
        tensor = NamedSource(declared["name"], source, source.datatype == "BYTES")
        return RequestPlan(data.rows, [tensor], None, _invalid(named))
    return RequestPlan(data.rows, named, _FRAME, _invalid(named))


def only_column(names: Sequence[str], columns: Optional[Sequence[str]]) -> Optional[str]:
    """Returns the column that alone is used, which may have all features of a row as a list."""
    used = list(names if columns is None else columns)
    return used[0] if len(used) == 1 and used[0] in names else None


def chosen(model: LoadedModel, names: Sequence[str], columns: Optional[Sequence[str]]) -> List[Tuple[str, str]]:
    """Returns pairs of a caller's column and the name that it is sent under.

    Columns that the model does not read may be missing. Raises `InferenceError` with the others that are.
    """
    wanted = model.column_names
    if columns is not None:
        columns = list(columns)
        missing = [name for name in columns if name not in names]
        if missing:
            raise _missing(missing, names, "")
        if wanted is None:
            return [(name, name) for name in columns]
        if len(columns) != len(wanted):
            raise InferenceError(
                f"there are {len(columns)} columns, but the model expects {len(wanted)}: {_listed(wanted)}"
            )
        return list(zip(columns, wanted))
    if wanted is None:
        return [(name, name) for name in names]
    found = {name: name for name in names}
    spaced = [name for name in names if " " in name]
    if spaced and not any(" " in feature for feature in wanted):
        # LightGBM writes `_` for the spaces of names.
        for name in spaced:
            found.setdefault(name.replace(" ", "_"), name)
    wanted = [feature for feature in wanted if feature in found or feature not in model.unread]
    missing = [feature for feature in wanted if feature not in found]
    if missing and len(missing) == len(wanted) == len(names) == 1:
        return [(names[0], wanted[0])]
    if missing:
        raise _missing(missing, names, " that the model expects")
    return [(found[feature], feature) for feature in wanted]


def _missing(missing: Sequence[str], names: Sequence[str], what: str) -> InferenceError:
    count = "column" if len(missing) == 1 else f"{len(missing)} columns"
    return InferenceError(
        f"the data lacks the {count} {_listed(missing)}{what}; it has {_listed(names)}. Rename them, or name the columns of the"
        " features in their order with `columns`"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MAX_NAMES])
    return f"{shown}, ..." if len(names) > _MAX_NAMES else shown or "none"


def _invalid(named: Sequence[NamedSource]) -> Dict[int, str]:
    invalid: Dict[int, str] = {}
    for each in reversed(named):  # the message of the first column counts
        invalid.update(each.source.invalid)
    return invalid


def _features(loaded: Dict[str, Any]) -> Optional[List[str]]:
    names = loaded.get("features")
    # LightGBM gives such names to features that have none.
    if not names or all(name == f"Column_{index}" for index, name in enumerate(names)):
        return None
    return list(names)


class StackedColumns(Source):
    """Columns side by side, as a matrix. Numbers are FP32 if all fit, otherwise FP64."""

    #: Datatypes whose every value is exact in FP32.
    _NARROW = frozenset(("BOOL", "INT8", "INT16", "UINT8", "UINT16", "FP16", "FP32"))

    def __init__(self, columns: Sequence[Source]) -> None:
        self._columns = list(columns)
        self.row_shape = (len(columns),)
        self.invalid = {}
        kinds = {column.datatype for column in columns}
        if "BYTES" in kinds and len(kinds) > 1:
            raise InferenceError("the model takes one matrix, but the columns are both text and numbers")
        self.datatype = "BYTES" if "BYTES" in kinds else "FP32" if kinds <= self._NARROW else "FP64"

    def __len__(self) -> int:
        return len(self._columns[0])

    def row_bytes(self) -> float:
        if self.datatype == "BYTES":
            return sum(column.row_bytes() for column in self._columns)
        return float((4 if self.datatype == "FP32" else 8) * len(self._columns))

    def encode(self, start: int, stop: int) -> List[Any]:
        if self.datatype == "BYTES":
            return self._texts(start, stop)
        numpy = _numpy()
        from .._tensor import numpy_dtype

        matrix = numpy.empty((stop - start, len(self._columns)), numpy_dtype(self.datatype))
        for index, column in enumerate(self._columns):
            raw = b"".join(column.encode(start, stop))
            matrix[:, index] = numpy.frombuffer(raw, numpy_dtype(column.datatype))
        return [memoryview(matrix.reshape(-1).view(numpy.uint8))] if matrix.size else []

    def _texts(self, start: int, stop: int) -> List[Any]:
        from .._tensor import BytesElements
        from .columns import bytes_buffers

        lists = []
        for column in self._columns:
            raw = memoryview(b"".join(column.encode(start, stop)))
            split = 4 * (stop - start + 1)
            lists.append(BytesElements(raw[split:], raw[:split].cast("I")).tolist())
        return bytes_buffers([text for row in zip(*lists) for text in row])


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise InferenceError("the model takes one matrix: install NumPy, which makes it of the columns") from None
    return numpy
