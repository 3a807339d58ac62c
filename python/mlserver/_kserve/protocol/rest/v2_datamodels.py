"""The bodies of V2 as data classes. Parts of them may be given as dictionaries."""

from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional, Type, TypeVar

__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "ListModelsResponse",
    "MetadataTensor",
    "ModelMetadataResponse",
    "ModelReadyResponse",
    "RequestInput",
    "RequestOutput",
    "ResponseOutput",
    "ServerLiveResponse",
    "ServerMetadataResponse",
    "ServerReadyResponse",
]

Parameters = Dict[str, Any]
_T = TypeVar("_T", bound="_Body")


class _Body:
    def model_dump(self, exclude_none: bool = False) -> Dict[str, Any]:
        """Returns the fields as a dictionary."""
        found: Dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return _without_none(found) if exclude_none else found

    dict = model_dump

    @classmethod
    def model_validate(cls: Type[_T], body: Any) -> _T:
        """Returns the data class of a dictionary."""
        return body if isinstance(body, cls) else cls(**body)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(each) for name, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value


def _each(cls: Type[_T], items: Any) -> List[_T]:
    return [cls.model_validate(item) for item in items]


@dataclass
class ServerLiveResponse(_Body):
    """Whether the server is live."""

    live: bool


@dataclass
class ServerReadyResponse(_Body):
    """Whether the server is ready."""

    ready: bool


@dataclass
class ServerMetadataResponse(_Body):
    """The server's metadata."""

    name: str
    version: str
    extensions: List[str]


@dataclass
class MetadataTensor(_Body):
    """A tensor in a model's metadata."""

    name: str
    datatype: str
    shape: List[int]


@dataclass
class ListModelsResponse(_Body):
    """The names of models."""

    models: List[str]


@dataclass
class ModelMetadataResponse(_Body):
    """A model's metadata."""

    name: str
    platform: str
    inputs: List[MetadataTensor]
    outputs: List[MetadataTensor]
    versions: Optional[List[str]] = None

    def __post_init__(self) -> None:
        self.inputs, self.outputs = _each(MetadataTensor, self.inputs), _each(MetadataTensor, self.outputs)


@dataclass
class ModelReadyResponse(_Body):
    """Whether a model is ready."""

    name: str
    ready: bool


@dataclass
class RequestInput(_Body):
    """An input of a request."""

    name: str
    shape: List[int]
    datatype: str
    data: List[Any]
    parameters: Optional[Parameters] = None


@dataclass
class RequestOutput(_Body):
    """An output that a client asks for."""

    name: str
    parameters: Optional[Parameters] = None


@dataclass
class ResponseOutput(RequestInput):
    """An output of a response."""


@dataclass
class InferenceRequest(_Body):
    """A request."""

    inputs: List[RequestInput]
    id: Optional[str] = None
    parameters: Optional[Parameters] = None
    outputs: Optional[List[RequestOutput]] = None

    def __post_init__(self) -> None:
        self.inputs = _each(RequestInput, self.inputs)
        self.outputs = None if self.outputs is None else _each(RequestOutput, self.outputs)


@dataclass
class InferenceResponse(_Body):
    """A response."""

    model_name: str
    id: str
    outputs: List[ResponseOutput]
    model_version: Optional[str] = None
    parameters: Optional[Parameters] = None

    def __post_init__(self) -> None:
        self.outputs = _each(ResponseOutput, self.outputs)
