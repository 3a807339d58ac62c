"""The names of pydantic 1 that models have, besides those of pydantic 2.

Those of schemas are in `BaseModel`: only it may use what needs pydantic, which uses it.
"""

import os
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Iterator, Optional, Set, Tuple, Type, TypeVar, Union

from ._dump import Dumped, DumpOptions, Selection, to_json
from ._text import read_file

__all__ = ["OldNames"]

M = TypeVar("M", bound="OldNames")

if TYPE_CHECKING:
    N = TypeVar("N", bound="_Model")

    class _Model(Dumped):
        """What the old names are names of."""

        _aliases: ClassVar[Dict[str, str]]
        _namespaces: ClassVar[Tuple[Dict[str, Any], Dict[str, Any]]]
        _fields_set: Set[str]

        @classmethod
        def _fields(cls) -> Dict[str, Any]: ...
        @classmethod
        def model_validate(cls: Type[N], obj: Any, **_options: Any) -> N: ...
        @classmethod
        def model_validate_json(cls: Type[N], json_data: Union[str, bytes, bytearray], **_options: Any) -> N: ...
        @classmethod
        def model_construct(cls: Type[N], _fields_set: Optional[Set[str]] = None, **values: Any) -> N: ...
        @classmethod
        def model_rebuild(cls, **_options: Any) -> Optional[bool]: ...
        def model_copy(self: N, *, update: Optional[Dict[str, Any]] = None, deep: bool = False) -> N: ...
else:
    _Model = Dumped


class OldNames(_Model):
    """The base of `BaseModel` with the names of pydantic 1."""

    __slots__ = ()

    @property
    def __fields_set__(self) -> Set[str]:
        return self._fields_set

    def dict(
        self,
        *,
        include: Selection = None,
        exclude: Selection = None,
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        **_options: Any,
    ) -> Any:
        """Returns the fields as a dictionary, nested models included."""
        options = DumpOptions("python", include, exclude, by_alias, exclude_unset, exclude_defaults, exclude_none)
        return self._dump(options)

    def json(
        self,
        *,
        include: Selection = None,
        exclude: Selection = None,
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        **_options: Any,
    ) -> str:
        """Returns the fields as JSON."""
        options = DumpOptions("json", include, exclude, by_alias, exclude_unset, exclude_defaults, exclude_none)
        return to_json(self._dump(options))

    @classmethod
    def validate(cls: Type[M], value: Any) -> M:
        """Creates a model from a dictionary. Returns an instance of the class as it is."""
        return cls.model_validate(value)

    @classmethod
    def from_orm(cls: Type[M], obj: Any) -> M:
        """Creates a model from the attributes of an object."""
        names = (cls._aliases.get(name, name) for name in cls._fields())
        return cls.model_validate({name: getattr(obj, name) for name in names if hasattr(obj, name)})

    @classmethod
    def parse_obj(cls: Type[M], obj: Any) -> M:
        """Creates a model from a dictionary."""
        return cls.model_validate(obj)

    @classmethod
    def parse_raw(cls: Type[M], b: Union[str, bytes], **_options: Any) -> M:
        """Creates a model from JSON."""
        return cls.model_validate_json(b)

    @classmethod
    def parse_file(cls: Type[M], path: "Union[str, os.PathLike[str]]", **_options: Any) -> M:
        """Creates a model from a JSON file."""
        return cls.model_validate_json(read_file(path))

    @classmethod
    def construct(cls: Type[M], _fields_set: Optional[Set[str]] = None, **values: Any) -> M:
        """Creates a model without validating the values."""
        return cls.model_construct(_fields_set, **values)

    def copy(self: M, *, update: Optional[Dict[str, Any]] = None, deep: bool = False, **_options: Any) -> M:
        """Returns a copy, with the fields of `update` changed."""
        return self.model_copy(update=update, deep=deep)

    @classmethod
    def update_forward_refs(cls, **localns: Any) -> None:
        """Reads the annotations again, with further names."""
        module, local = cls._namespaces
        cls._namespaces = (module, {**local, **localns})
        cls.model_rebuild()

    @classmethod
    def __get_validators__(cls) -> Iterator[Any]:
        yield cls.validate  # pydantic 1 reads its signature
