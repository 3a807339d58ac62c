"""Requests, responses and metadata of the inference protocol."""

import enum
from typing import Any, Dict, Iterator, List, Optional

from .._model import jsonable
from .._tensor import BytesElements, Elements, FixedElements
from .._validate import Loc, Problems
from .base import BaseModel

_set = object.__setattr__

#: What is given of any data. It is never added to, as data has no other field.
_ROOT = {"root"}


class Datatype(enum.Enum):
    """The datatypes of tensors; instances hold the name as a plain string."""

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
    """Parameters of a request, a response or a tensor: two known names, and any others."""

    __slots__ = ("_decoded_payload",)

    _extra = "allow"
    _private = frozenset(("_decoded_payload",))

    _decoded_payload: Any

    content_type: Optional[str] = None
    headers: Optional[Dict[str, Any]] = None

    def __getattr__(self, name: str) -> Any:  # extras, for type checkers
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class TensorData(BaseModel):
    """The data of a tensor: any value, or a buffer that becomes a list when somebody looks at it."""

    __slots__ = ("_held",)

    _private = frozenset(("_held", "root"))

    _held: Any

    def __init__(self, root: Any = None) -> None:
        _set(self, "_held", root._held if isinstance(root, TensorData) else root)
        _set(self, "_given", _ROOT)

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
        """The buffer behind the data, or `None` when it holds a plain value."""
        held = self._held
        return held if isinstance(held, (FixedElements, BytesElements)) else None

    @property
    def raw(self) -> Any:
        """What it holds, be that a value or elements; nothing is converted."""
        return self._held

    @property
    def root(self) -> Any:
        """The data as a value; a buffer becomes a list here, and stays one, so that changes to the list are kept."""
        held = self._held
        if isinstance(held, (FixedElements, BytesElements)):
            held = held.tolist()
            object.__setattr__(self, "_held", held)
        return held

    @root.setter
    def root(self, value: Any) -> None:
        object.__setattr__(self, "_held", value)

    @property
    def __root__(self) -> Any:
        return self.root

    @classmethod
    def __validate__(cls, value: Any, _loc: Loc, _problems: Problems) -> Any:
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def model_construct(cls, _fields_set: Any = None, **values: Any) -> "TensorData":
        """Makes data of the value `root`."""
        return cls(values.get("root"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)

    def __getitem__(self, index: Any) -> Any:
        return self._held[index]

    def __len__(self) -> int:
        return len(self._held)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, TensorData):
            return NotImplemented
        if self._held is other._held:
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
        return type(self)(self._held)

    def __deepcopy__(self, memo: Any = None) -> "TensorData":
        import copy

        held = self._held
        return type(self)(held if self.elements is not None else copy.deepcopy(held, memo))


class MetadataTensor(BaseModel):
    """What is known beforehand about an input or an output of a model."""

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
    """Why there is no metadata of the server."""

    error: str


class MetadataModelResponse(BaseModel):
    """What is known about a model."""

    name: str
    versions: Optional[List[str]] = None
    platform: str
    inputs: Optional[List[MetadataTensor]] = None
    outputs: Optional[List[MetadataTensor]] = None
    parameters: Optional[Parameters] = None


class MetadataModelErrorResponse(BaseModel):
    """Why there is no metadata of a model."""

    error: str


class RequestInput(BaseModel):
    """A tensor that goes to a model."""

    name: str
    shape: List[int]
    datatype: Datatype
    parameters: Optional[Parameters] = None
    data: TensorData


class RequestOutput(BaseModel):
    """A tensor that is wanted from a model."""

    name: str
    parameters: Optional[Parameters] = None


class ResponseOutput(BaseModel):
    """A tensor that comes from a model."""

    name: str
    shape: List[int]
    datatype: Datatype
    parameters: Optional[Parameters] = None
    data: TensorData


class InferenceRequest(BaseModel):
    """What a model is asked."""

    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    inputs: List[RequestInput]
    outputs: Optional[List[RequestOutput]] = None


class InferenceResponse(BaseModel):
    """What a model answers."""

    model_name: str
    model_version: Optional[str] = None
    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    outputs: List[ResponseOutput]


class InferenceErrorResponse(BaseModel):
    """Why there is no answer."""

    error: Optional[str] = None
