"""Requests, responses and metadata of the inference protocol."""

import enum
from typing import Any, Dict, Iterator, List, Optional

from .._model import jsonable
from .._tensor import BytesElements, Elements, FixedElements
from .._validate import Loc, Problems
from .base import BaseModel

_set = object.__setattr__

#: The fields that are set in every `TensorData`. It is never changed, because there is no other field.
_ROOT = {"root"}


class Datatype(enum.Enum):
    """The datatypes of tensors. Fields of this type contain the name as a plain string."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"


class Parameters(BaseModel):
    """Parameters of a request, a response or a tensor: two known ones, and any others."""

    __slots__ = ("_decoded_payload",)

    _extra = "allow"
    _private = frozenset(("_decoded_payload",))

    _decoded_payload: Any

    content_type: Optional[str] = None
    headers: Optional[Dict[str, Any]] = None

    def __getattr__(self, name: str) -> Any:  # extras, for type checkers
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class TensorData(BaseModel):
    """The data of a tensor: any value, or a buffer that is converted to a list on first access."""

    __slots__ = ("_data",)

    _private = frozenset(("_data", "root"))

    _data: Any

    def __init__(self, root: Any = None) -> None:
        _set(self, "_data", root._data if isinstance(root, TensorData) else root)
        _set(self, "_fields_set", _ROOT)

    @classmethod
    def from_buffer(cls, datatype: str, buffer: memoryview) -> "TensorData":
        """Returns data over little-endian elements of a fixed-width datatype, without a copy."""
        return cls(FixedElements(datatype, buffer))

    @classmethod
    def from_bytes(cls, buffer: memoryview, offsets: memoryview, text: bool = False) -> "TensorData":
        """Returns data over elements of different lengths, without a copy; see `mlserver._tensor`."""
        return cls(BytesElements(buffer, offsets, text))

    @property
    def elements(self) -> Optional[Elements]:
        """The buffer with the data, or `None` if the data is a plain value."""
        data = self._data
        return data if isinstance(data, (FixedElements, BytesElements)) else None

    @property
    def raw(self) -> Any:
        """The value or the elements, without conversion."""
        return self._data

    @property
    def root(self) -> Any:
        """The data as a value. A buffer is converted to a list once, so that changes to the list are kept."""
        data = self._data
        if isinstance(data, (FixedElements, BytesElements)):
            data = data.tolist()
            object.__setattr__(self, "_data", data)
        return data

    @root.setter
    def root(self, value: Any) -> None:
        object.__setattr__(self, "_data", value)

    @property
    def __root__(self) -> Any:
        return self.root

    @classmethod
    def __validate__(cls, value: Any, _loc: Loc, _problems: Problems) -> Any:
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def model_construct(cls, _fields_set: Any = None, **values: Any) -> "TensorData":
        """Creates data with the value `root`."""
        return cls(values.get("root"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __getitem__(self, index: Any) -> Any:
        return self._data[index]

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, TensorData):
            return NotImplemented
        if self._data is other._data:
            return True
        return bool(self.root == other.root)

    def __repr_args__(self) -> Iterator[Any]:
        yield "root", self.root

    def __str__(self) -> str:
        return f"root={self.root!r}"

    def _items(self) -> Iterator[Any]:
        yield "root", self.root

    def _dump(self, *, mode: str = "python", **_options: Any) -> Any:
        return jsonable(self.root) if mode == "json" else self.root

    def __getstate__(self) -> Any:
        return {"root": self.root}

    def __setstate__(self, state: Any) -> None:
        TensorData.__init__(self, state["root"])

    def __copy__(self) -> "TensorData":
        return type(self)(self._data)

    def __deepcopy__(self, memo: Any = None) -> "TensorData":
        import copy

        data = self._data
        return type(self)(data if self.elements is not None else copy.deepcopy(data, memo))


class MetadataTensor(BaseModel):
    """The metadata of an input or an output of a model."""

    name: str
    datatype: Datatype
    shape: List[int]
    parameters: Optional[Parameters] = None


class MetadataServerResponse(BaseModel):
    """Name, version and extensions of a server."""

    name: str
    version: str
    extensions: List[str]


class MetadataServerErrorResponse(BaseModel):
    """The error of a request for the server's metadata."""

    error: str


class MetadataModelResponse(BaseModel):
    """The metadata of a model."""

    name: str
    versions: Optional[List[str]] = None
    platform: str
    inputs: Optional[List[MetadataTensor]] = None
    outputs: Optional[List[MetadataTensor]] = None
    parameters: Optional[Parameters] = None


class MetadataModelErrorResponse(BaseModel):
    """The error of a request for a model's metadata."""

    error: str


class RequestInput(BaseModel):
    """An input tensor of a request."""

    name: str
    shape: List[int]
    datatype: Datatype
    parameters: Optional[Parameters] = None
    data: TensorData


class RequestOutput(BaseModel):
    """A requested output."""

    name: str
    parameters: Optional[Parameters] = None


class ResponseOutput(BaseModel):
    """An output tensor of a response."""

    name: str
    shape: List[int]
    datatype: Datatype
    parameters: Optional[Parameters] = None
    data: TensorData


class InferenceRequest(BaseModel):
    """A request to a model."""

    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    inputs: List[RequestInput]
    outputs: Optional[List[RequestOutput]] = None


class InferenceResponse(BaseModel):
    """The response of a model."""

    model_name: str
    model_version: Optional[str] = None
    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    outputs: List[ResponseOutput]


class InferenceErrorResponse(BaseModel):
    """The error of an inference request."""

    error: Optional[str] = None
