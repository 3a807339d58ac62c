"""Requests, responses and metadata of the inference protocol."""

import copy
import enum
import json
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from .._dump import DumpOptions, dumped_json
from .._model import set_fields
from .._pydantic import NotADataclass, encode_in_fastapi
from .._tensor import BytesElements, DoubleElements, Elements, FixedElements, nest
from .._validate import Loc, Problems
from ..context import model_name_var
from .base import BaseModel, ValidationError

if TYPE_CHECKING:
    from ..settings import ModelSettings

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

    __slots__ = ("_decoded_payload", "_request")

    _extra = "allow"
    _private = frozenset(("_decoded_payload",))

    _decoded_payload: Any
    #: The request that has these parameters and the settings of its model, in the code of the model.
    _request: Tuple["weakref.ref[InferenceRequest]", "ModelSettings"]

    content_type: Optional[str] = None
    headers: Optional[Dict[str, Any]] = None

    def __getattr__(self, name: str) -> Any:
        # Extras are attributes already. This is also for type checkers.
        if name == "_decoded_payload":
            reference, settings = own_attribute(self, "_request", (None, None))
            request = reference and reference()
            if request is not None:
                return _decoded(request, settings)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def own_attribute(instance: Any, name: str, default: Any = None) -> Any:
    """Returns an attribute, or `default`, without computing it."""
    try:
        return object.__getattribute__(instance, name)
    except AttributeError:
        return default


def decode_on_demand(request: "InferenceRequest", settings: "ModelSettings") -> None:
    """Has the parameters of a request decode it when the code of a model reads their decoded value."""
    parameters = request.parameters
    if parameters is not None:
        # Weak, because a cycle would keep requests in memory until the garbage is collected.
        _set_request(parameters, (weakref.ref(request), settings))


def _decoded(request: "InferenceRequest", settings: "ModelSettings") -> Any:
    from ..codecs.utils import decode_inference_request

    decoded = decode_inference_request(request, settings, {tensor.name: tensor for tensor in settings.inputs or ()})
    if decoded is request:
        raise AttributeError("the request has no decoded value: neither it nor its model has the content type of a request")
    return decoded


class TensorData(BaseModel):
    """The data of a tensor: any value, or a buffer that is converted to a list on first access."""

    __slots__ = ("_data", "_sent", "_shape")

    _private = frozenset(("_data", "_sent", "_shape", "root"))

    _data: Any
    _sent: Optional[bytes]
    _shape: Optional[List[int]]

    #: Not a dataclass, unlike its base class, so that encoders do not take it for an object with fields.
    __dataclass_fields__ = NotADataclass()

    def __init__(
        self,
        root: Any = None,
        shape: Optional[List[int]] = None,
        sent: Optional[bytes] = None,
        *,
        __root__: Any = None,
    ) -> None:
        """A buffer is shown as rows that are nested by `shape`, or as the value of the JSON `sent`, if one is given.

        `__root__` is the name of `root` in pydantic 1.
        """
        if __root__ is not None:
            root = __root__
        if isinstance(root, TensorData):
            root, shape, sent = root._data, root._shape, root._sent
        _set(self, "_data", root)
        _set(self, "_shape", shape if shape is not None and len(shape) > 1 else None)
        _set(self, "_sent", sent)
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
    def nested(self) -> bool:
        """Whether the data is a buffer that is shown as rows."""
        return self._shape is not None and self.elements is not None

    @property
    def shape(self) -> Optional[List[int]]:
        """The shape of the rows as which a buffer is shown."""
        return self._shape

    @property
    def sent(self) -> Optional[bytes]:
        """The JSON as whose value a buffer is shown."""
        return self._sent

    @property
    def raw(self) -> Any:
        """The value or the elements, without conversion."""
        return self._data

    @property
    def root(self) -> Any:
        """The data as a value. A buffer is converted to a list once, so that changes to the list are kept."""
        data = self._data
        if isinstance(data, (FixedElements, BytesElements)):
            if self._sent is not None:
                data = json.loads(self._sent)
                _set(self, "_sent", None)
            else:
                data = data.tolist() if self._shape is None else nest(data.tolist(), self._shape)
            _set(self, "_data", data)
        return data

    @root.setter
    def root(self, value: Any) -> None:
        _set(self, "_data", value)

    @property
    def __root__(self) -> Any:
        return self.root

    @classmethod
    def __validate__(cls, value: Any, _loc: Loc, _problems: Problems) -> Any:
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def model_construct(cls, _fields_set: Any = None, root: Any = None, **_values: Any) -> "TensorData":
        """Creates data with the value `root`."""
        return cls(root)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> Any:
        return {"anyOf": [{"items": {}, "type": "array"}, {}], "title": cls.__name__}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data if self._is_flat else self.root)

    def __getitem__(self, index: Any) -> Any:
        # Rows are those of `root`, so that changes to them are kept.
        return self._data[index] if self._is_flat else self.root[index]

    def __len__(self) -> int:
        if self._sent is None and self._shape is not None and self.elements is not None:
            return self._shape[0]
        return len(self._data if self._is_flat else self.root)

    @property
    def _is_flat(self) -> bool:
        return self._shape is None and self._sent is None

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """Returns the data as an array: of 64-bit numbers, as that of a list of Python's numbers, unless `dtype` is given.

        The array shares the memory of the tensor if it has that dtype already.
        """
        import numpy

        data = self._data
        if not isinstance(data, FixedElements) or self._sent is not None:
            if copy is False:
                raise ValueError("data that is not a buffer of numbers cannot be an array without a copy")
            return numpy.array(self.root, dtype=dtype)
        found = data.doubles() if isinstance(data, DoubleElements) else data.numpy()
        if self._shape is not None:
            found = found.reshape(self._shape)
        wanted = numpy.dtype(dtype) if dtype is not None else _default_dtype(found)
        if found.dtype != wanted:
            if copy is False:
                raise ValueError(f"a {data.datatype} tensor cannot be an array of {wanted} without a copy")
            return found.astype(wanted)
        return found.copy() if copy else found

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, TensorData):
            return NotImplemented
        if self._data is other._data and self._shape == other._shape and self._sent == other._sent:
            return True
        return bool(self.root == other.root)

    def __repr_args__(self) -> Iterator[Any]:
        yield "root", self.root

    def __str__(self) -> str:
        return f"root={self.root!r}"

    def _items(self) -> Iterator[Any]:
        yield "root", self.root

    def _dump(self, options: DumpOptions) -> Any:
        return dumped_json(self.root) if options.mode == "json" else self.root

    def __getstate__(self) -> Any:
        return {"root": self.root}

    def __setstate__(self, state: Any) -> None:
        TensorData.__init__(self, state["root"])

    def __copy__(self) -> "TensorData":
        return type(self)(self)

    def __deepcopy__(self, memo: Any = None) -> "TensorData":
        data = self._data
        if isinstance(data, FixedElements):
            # Arrays that are decoded from the copy must not share memory with those of the original.
            copied: Any = data.copy()
        else:
            copied = data if isinstance(data, BytesElements) else copy.deepcopy(data, memo)
        return type(self)(copied, self._shape, self._sent)


encode_in_fastapi(TensorData, lambda data: dumped_json(data.root))

# The setters of slots, which take half the time of `object.__setattr__`.
_new_data = TensorData.__new__
_set_data: Callable[[TensorData, Any], None] = vars(TensorData)["_data"].__set__
_set_shape: Callable[[TensorData, Any], None] = vars(TensorData)["_shape"].__set__
_set_sent: Callable[[TensorData, Any], None] = vars(TensorData)["_sent"].__set__
_set_request: Callable[[Parameters, Any], None] = vars(Parameters)["_request"].__set__


def flat_data(root: Any) -> TensorData:
    """Does what `TensorData(root)` does, in half the time, for a value that is not data itself."""
    data = _new_data(TensorData)
    _set_data(data, root)
    _set_shape(data, None)
    _set_sent(data, None)
    set_fields(data, _ROOT)
    return data


def _as_text(value: Any) -> Any:
    """Returns text in place of bytes that are UTF-8."""
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _default_dtype(array: Any) -> Any:
    """Returns the dtype of an array of the same elements as Python's numbers."""
    import numpy

    kind = array.dtype.kind
    if kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >> 63:
        return numpy.dtype(numpy.uint64)
    return numpy.dtype({"b": "bool", "u": "int64", "i": "int64", "f": "float64"}[kind])


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

    #: Set if the request came over gRPC.
    __slots__ = ("_from_grpc",)

    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    inputs: List[RequestInput]
    outputs: Optional[List[RequestOutput]] = None

    def dict(self, **options: Any) -> Any:
        """Returns the fields as a dictionary for JSON: bytes that are UTF-8 are text. `model_dump` keeps them."""
        found = super().dict(**options)
        for tensor in found.get("inputs") or ():
            if "data" in tensor:
                tensor["data"] = _as_text(tensor["data"])
        return found


class InferenceResponse(BaseModel):
    """The response of a model."""

    model_name: str
    model_version: Optional[str] = None
    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    outputs: List[ResponseOutput]

    def __init__(self, **values: Any) -> None:
        """In the code of a model, `model_name` is that of the model unless it is given."""
        if "model_name" not in values:
            name = model_name_var.get(None)
            if name:
                values["model_name"] = name
        # What the constructor of the base class does, without another call: models create one for each request.
        problems = Problems()
        self._fill(values, (), problems)
        if problems.found:
            raise ValidationError(type(self).__name__, problems.found)


class InferenceErrorResponse(BaseModel):
    """The error of an inference request."""

    error: Optional[str] = None
