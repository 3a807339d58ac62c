"""Requests and responses of the model repository's protocol."""

import enum
from typing import Any, Iterator, List, Optional

from .._dump import DumpOptions, dump_value
from .._pydantic import NotADataclass, encode_in_fastapi
from .._validate import Loc, Problems, ValidationError, validator_for
from .base import BaseModel


class State(enum.Enum):
    """The states of a model. Fields of this type contain the name as a plain string."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


class RepositoryIndexRequest(BaseModel):
    """A request for the list of models."""

    ready: Optional[bool] = None


class RepositoryIndexResponseItem(BaseModel):
    """One model of the list."""

    name: str
    version: Optional[str] = None
    state: State
    reason: str


class RepositoryIndexResponse(BaseModel):
    """The list of models."""

    _sparse = False

    root: List[RepositoryIndexResponseItem]

    __dataclass_fields__ = NotADataclass()

    def __init__(self, root: Any = None, *, __root__: Any = None) -> None:
        """Takes the models of the list. `__root__` is the name of `root` in pydantic 1."""
        root = __root__ if root is None else root
        problems = Problems()
        items = self._items_of(root, (), problems)
        if problems.found:
            raise ValidationError(type(self).__name__, problems.found)
        super().__init__(root=items)

    @classmethod
    def __validate__(cls, value: Any, loc: Loc, problems: Problems) -> Any:
        if isinstance(value, cls):
            return value
        return cls.model_construct(root=cls._items_of(value, loc, problems))

    @staticmethod
    def _items_of(value: Any, loc: Loc, problems: Problems) -> Any:
        return validator_for(List[RepositoryIndexResponseItem])(value, loc, problems)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, handler: Any) -> Any:
        from pydantic import TypeAdapter

        return {"title": cls.__name__, **handler(TypeAdapter(List[RepositoryIndexResponseItem]).core_schema)}

    @property
    def __root__(self) -> List[RepositoryIndexResponseItem]:
        return self.root

    def __iter__(self) -> Iterator[RepositoryIndexResponseItem]:
        return iter(self.root)

    def __getitem__(self, index: Any) -> Any:
        return self.root[index]

    def __len__(self) -> int:
        return len(self.root)

    def _dump(self, options: DumpOptions) -> Any:
        return dump_value(self.root, options._replace(include=None, exclude=None))


encode_in_fastapi(RepositoryIndexResponse, lambda response: response.model_dump(mode="json"))


class RepositoryLoadErrorResponse(BaseModel):
    """The error of loading a model."""

    error: Optional[str] = None


class RepositoryUnloadErrorResponse(BaseModel):
    """The error of unloading a model."""

    error: Optional[str] = None


__all__ = [
    "RepositoryIndexRequest",
    "RepositoryIndexResponse",
    "RepositoryIndexResponseItem",
    "RepositoryLoadErrorResponse",
    "RepositoryUnloadErrorResponse",
    "State",
]
