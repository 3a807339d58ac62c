"""Data classes with the methods of pydantic's models, versions 1 and 2.

A model is a class with annotated fields. The values are in the instance's `__dict__`, by field name; the names of the fields
that were set explicitly are in a slot, for `exclude_unset`. Only the standard library is needed, so that the server's
requirements never conflict with those of a model.

`dict()` and `json()` return every field, as in pydantic; `model_dump()` and `model_dump_json()` of the payload types leave
out fields that are unset or `None`, as in the original (`_sparse`).
"""

import copy
import inspect
import json
import re
import sys
import types
import typing
from typing import Any, Callable, ClassVar, Dict, Iterator, Optional, Set, Tuple, Type, TypeVar, Union

from ._dump import DumpOptions, Selection, dump_value, to_json
from ._pydantic import (
    NATIVE_OPTIONS,
    UNSUPPORTED_OPTIONS,
    Core,
    DataclassFields,
    core_schema_of,
    is_feature,
    is_feature_hint,
    json_schema,
    json_schema_hook,
    require,
    unsupported_options,
)
from ._pydantic1 import OldNames
from ._validate import Loc, Problems, ValidationError, Validator, any_value, validator_for

M = TypeVar("M", bound="BaseModel")

#: Attributes of classes that are neither fields nor private attributes of instances.
INTERNAL_NAMES = {
    "_aliases",
    "_core",
    "_env_file",
    "_env_prefix",
    "_extra",
    "_field_table",
    "_has_post_init",
    "_hidden_model",
    "_namespaces",
    "_private",
    "_private_defaults",
    "_reserved_names",
    "_shadowing",
    "_sparse",
}

_MISSING: Any = object()


class Factory:
    """The default of a field whose default value is created when it is needed."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class FieldInfo:
    """One field of a model: its annotation, its default and how its values are validated."""

    __slots__ = ("annotation", "default", "default_factory", "name", "names", "validate")

    def __init__(self, name: str, annotation: Any, default: Any, validate: Validator) -> None:
        self.name = name
        self.annotation = annotation
        self.default = default
        self.default_factory: Optional[Callable[[], Any]] = None
        self.validate = validate
        #: The names of the field in values, if pydantic defines them. They have no prefix in the environment.
        self.names: Tuple[str, ...] = ()
        if isinstance(default, Factory):
            self.default_factory = default.make
        elif isinstance(default, (list, dict, set)):
            self.default_factory = lambda: copy.deepcopy(default)

    def is_required(self) -> bool:
        """Returns whether the field has no default."""
        return self.default is _MISSING

    @property
    def required(self) -> bool:
        """Whether the field has no default (the name in pydantic 1)."""
        return self.is_required()

    def get_default(self) -> Any:
        """Returns the default; a new copy if it is mutable."""
        return self.default_factory() if self.default_factory else self.default

    def __repr__(self) -> str:
        default = "" if self.is_required() else f", default={self.default!r}"
        return f"FieldInfo(annotation={self.annotation!r}, required={self.is_required()}{default})"


class _FieldsAttribute:
    """The table of fields as an attribute of the class, created on first access."""

    def __get__(self, instance: Any, owner: Type["BaseModel"]) -> Dict[str, FieldInfo]:
        return owner._fields()


class _SignatureAttribute:
    """The signature of the class, for completion and `inspect`."""

    def __get__(self, instance: Any, owner: Type["BaseModel"]) -> inspect.Signature:
        parameters = [
            inspect.Parameter(
                owner._aliases.get(name, name),
                inspect.Parameter.KEYWORD_ONLY,
                annotation=field.annotation,
                default=inspect.Parameter.empty if field.is_required() else field.get_default(),
            )
            for name, field in owner._fields().items()
        ]
        if owner._extra == "allow":
            parameters.append(inspect.Parameter("extra_data", inspect.Parameter.VAR_KEYWORD, annotation=Any))
        return inspect.Signature(parameters)


class _ComputedFieldsAttribute:
    """The table of pydantic's computed fields, as an attribute of the class."""

    def __get__(self, instance: Any, owner: Type["BaseModel"]) -> Dict[str, Any]:
        owner._fields()
        return {} if owner._core is None else dict(owner._core.model.model_computed_fields)


class BaseModel(OldNames):
    """A class whose annotated attributes are its validated fields."""

    __slots__ = ("__dict__", "__weakref__", "_fields_set")

    #: How values that do not belong to a field are handled: "ignore", "allow" or "forbid".
    _extra: ClassVar[str] = "ignore"
    #: The external names of fields whose external name is not their own.
    _aliases: ClassVar[Dict[str, str]] = {}
    #: Whether `model_dump` leaves out fields that are unset or `None` by default.
    _sparse: ClassVar[bool] = False
    #: Attributes that are never part of the data.
    _private: ClassVar["frozenset[str]"] = frozenset()

    _fields_set: Set[str]

    #: Extra values with the names of attributes of the class, which they must not hide. An instance has them in its `__dict__`.
    _shadowing: ClassVar[Dict[str, Any]] = {}

    #: Default values of private attributes, which instances have but which are no data.
    _private_defaults: ClassVar[Dict[str, Any]] = {}
    #: Whether `model_post_init` or private attributes are set after validation.
    _has_post_init: ClassVar[bool] = False
    #: What validates instances instead, if the class uses features of pydantic.
    _core: ClassVar[Optional["Core"]] = None

    model_config: ClassVar[Any] = {}
    model_computed_fields: ClassVar[Any] = _ComputedFieldsAttribute()
    __dataclass_fields__: ClassVar[Any] = DataclassFields()
    __dataclass_params__: ClassVar[Any] = types.SimpleNamespace(
        init=False, repr=False, eq=False, order=False, unsafe_hash=False, frozen=False
    )
    __signature__: ClassVar[Any] = _SignatureAttribute()

    model_fields: ClassVar[Any] = _FieldsAttribute()
    __fields__: ClassVar[Any] = _FieldsAttribute()

    #: The names that annotations may use: those of the module, and of the function in which the class is defined.
    _namespaces: ClassVar[Tuple[Dict[str, Any], Dict[str, Any]]] = ({}, {})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Taken now, because another module may have this name when the annotations are read.
        module = sys.modules.get(cls.__module__)
        cls._namespaces = ({} if module is None else vars(module), _locals_of(cls))
        config = cls.__dict__.get("model_config")
        old_config = cls.__dict__.get("Config")
        if isinstance(old_config, type):
            config = {name: value for name, value in vars(old_config).items() if not name.startswith("_")}
        if isinstance(config, dict):
            cls._configure(config)
        if not is_of_sdk(cls):
            cls._collect_private()
            for name, value in list(vars(cls).items()):
                if is_feature(value):
                    require(cls, f"`{name}` of pydantic")
            if "settings_customise_sources" in cls.__dict__:
                raise TypeError(f"`{cls.__qualname__}` overrides `settings_customise_sources`, which is not supported")
        cls._has_post_init = bool(cls._private_defaults) or cls.model_post_init is not BaseModel.model_post_init

    @classmethod
    def _configure(cls, config: Dict[str, Any]) -> None:
        """Follows the options in `model_config`, or in the `Config` of pydantic 1."""
        unsupported = unsupported_options(config)
        if unsupported:
            names = ", ".join(f"`{name}`" for name in unsupported)
            raise TypeError(f"`model_config` of `{cls.__qualname__}` has {names}, which is not supported")
        cls.model_config = {**cls.model_config, **config}
        cls._extra = str(getattr(config.get("extra"), "value", config.get("extra", cls._extra)))
        others = [name for name in config if name not in NATIVE_OPTIONS and name not in UNSUPPORTED_OPTIONS]
        if others:
            require(cls, f"`{others[0]}` in `model_config`")

    @classmethod
    def _collect_private(cls) -> None:
        """Finds private attributes: names with an underscore, with an annotation or a value that is no method."""
        own, annotations = dict(vars(cls)), _own_annotations(cls)
        found = {}
        for name in {**annotations, **own}:
            if not name.startswith("_") or name.startswith("__") or name in INTERNAL_NAMES:
                continue
            value = own.get(name, _MISSING)
            if name not in annotations and (hasattr(value, "__get__") or isinstance(value, type)):
                continue
            found[name] = value
            if type(value).__name__ == "ModelPrivateAttr":
                delattr(cls, name)
        if found:
            cls._private = cls._private | found.keys()
            cls._private_defaults = {**cls._private_defaults, **found}

    def _init_private(self) -> None:
        for name, value in self._private_defaults.items():
            if value is _MISSING or name in self.__dict__:
                continue
            if type(value).__name__ == "ModelPrivateAttr":
                default = copy.deepcopy(value.default) if value.default_factory is None else value.default_factory()
            else:
                default = copy.deepcopy(value)
            if type(default).__name__ != "PydanticUndefinedType":
                object.__setattr__(self, name, default)

    def _after_core(self, context: Any) -> None:
        """Called by pydantic for classes that use its features."""
        self._init_private()
        self.model_post_init(context)

    def model_post_init(self, context: Any, /) -> None:
        """Called after validation. Subclasses may override it."""

    def __init__(self, **values: Any) -> None:
        problems = Problems()
        self._fill(values, (), problems)
        if problems.found:
            raise ValidationError(type(self).__name__, problems.found)

    @classmethod
    def _fields(cls) -> Dict[str, FieldInfo]:
        """Returns the table of fields. It is built once for each class, on first use, so that imports stay fast."""
        fields: Optional[Dict[str, FieldInfo]] = cls.__dict__.get("_field_table")
        if fields is None:
            fields = {}
            for owner in reversed(cls.__mro__):
                if owner in (object, BaseModel):
                    continue
                for name, hint in _own_annotations(owner).items():
                    if name.startswith("_") or name == "model_config":
                        continue
                    hint = _resolve(hint, owner, name)
                    if typing.get_origin(hint) is ClassVar or hint is ClassVar:
                        continue
                    default = owner.__dict__.get(name, _MISSING)
                    if isinstance(default, property) or hasattr(default, "__set__"):
                        default = _MISSING
                    fields[name] = FieldInfo(name, hint, default, validator_for(hint))
            cls._core = None
            if cls._uses_pydantic(fields):
                cls._core = Core(cls)
                fields = cls._fields_of_core(cls._core)
            cls._field_table = fields  # type: ignore[attr-defined]
        return fields

    @classmethod
    def _uses_pydantic(cls, fields: Dict[str, FieldInfo]) -> bool:
        """Returns whether only pydantic can validate instances as the class demands."""
        owners = [owner for owner in cls.__mro__ if issubclass(owner, BaseModel) and not is_of_sdk(owner)]
        if not owners:
            return False
        return (
            any(is_feature(value) for owner in owners for value in list(vars(owner).values()))
            or any(is_feature_hint(field.annotation) for field in fields.values())
            or any(name not in NATIVE_OPTIONS and name not in UNSUPPORTED_OPTIONS for name in cls.model_config)
        )

    @classmethod
    def _fields_of_core(cls, core: "Core") -> Dict[str, FieldInfo]:
        fields = {}
        aliases = dict(cls._aliases)
        for name, declared in core.fields.items():
            default = _MISSING if declared.is_required() else declared.default
            if declared.default_factory is not None:
                default = Factory(declared.default_factory)
            fields[name] = FieldInfo(name, declared.annotation, default, any_value)
            if name not in cls._aliases:
                fields[name].names, shown = core.aliases(name)
                if shown is not None:
                    aliases[name] = shown
        cls._aliases = aliases
        return fields

    def _fill(self, values: Dict[str, Any], loc: Loc, problems: Problems) -> None:
        """Validates `values` and sets the fields."""
        fields, aliases = type(self).__dict__.get("_field_table") or self._fields(), self._aliases
        if self._core is not None:
            private = {name: values[name] for name in self._private if name in values}
            for name, value in private.items():
                object.__setattr__(self, name, value)
            if private:
                values = {name: value for name, value in values.items() if name not in private}
            self._core.fill(self, values, loc, problems)
            return
        found = len(problems.found)
        attributes = self.__dict__
        fields_set = set()
        for name, field in fields.items():
            shown = aliases.get(name, name) if aliases else name
            if shown in values:
                attributes[name] = field.validate(values[shown], (*loc, shown) if loc else (shown,), problems)
                fields_set.add(name)
            elif field.default is not _MISSING:
                attributes[name] = field.default_factory() if field.default_factory else field.default
            else:
                problems.add("missing", (*loc, shown), "Field required", values)
        if self._extra != "ignore":
            for name, value in values.items():
                if name in fields or name in self._aliases.values():
                    continue
                if name in self._private:
                    object.__setattr__(self, name, value)
                    continue
                if self._extra == "forbid":
                    problems.add("extra_forbidden", (*loc, name), "Extra inputs are not permitted", value)
                else:
                    self._set_values({name: value})
                    fields_set.add(name)
        set_fields(self, fields_set)
        if self._has_post_init and len(problems.found) == found:
            self._after_core(None)

    def _set_values(self, values: Dict[str, Any]) -> None:
        """Sets fields and extra values, without validation."""
        reserved = self._reserved()
        if reserved.isdisjoint(values):
            self.__dict__.update(values)
            return
        shadowing = dict(self._shadowing)
        for name, value in values.items():
            (shadowing if name in reserved else self.__dict__)[name] = value
        self.__dict__["_shadowing"] = shadowing

    @classmethod
    def _reserved(cls) -> "frozenset[str]":
        """Returns the names of attributes of the class that are not fields: its methods, above all."""
        names: Optional[frozenset[str]] = cls.__dict__.get("_reserved_names")
        if names is None:
            all_names = {name for owner in cls.__mro__ for name in vars(owner)}
            names = cls._reserved_names = frozenset(all_names - cls._fields().keys())  # type: ignore[attr-defined]
        return names

    @classmethod
    def __validate__(cls: Type[M], value: Any, loc: Loc, problems: Problems) -> Any:
        """Validates the value of a field whose type is this class."""
        if isinstance(value, cls):
            return value
        if isinstance(value, typing.Mapping):
            instance = cls.__new__(cls)
            instance._fill(dict(value), loc, problems)
            return instance
        message = f"Input should be a valid dictionary or instance of {cls.__name__}"
        problems.add("model_type", loc, message, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._private or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        elif self._core is not None and self._core.checks_assignment:
            self._core.assign(self, name, value)
        elif self._extra == "allow" or name in self._fields():
            self.__dict__[name] = value
            self._fields_set.add(name)
        else:
            raise ValueError(f'"{type(self).__name__}" object has no field "{name}"')

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._fields_set.discard(name)

    # Values

    def _items(self) -> Iterator[Tuple[str, Any]]:
        """Yields names and values: fields in the order of their declaration, then extra values."""
        fields = self._fields()
        attributes = self.__dict__
        for name in fields:
            if name in attributes:
                yield name, attributes[name]
        if len(attributes) > len(fields) or self._extra == "allow":
            for name, value in attributes.items():
                if name not in fields and name not in self._private and name != "_shadowing":
                    yield name, value
            yield from self._shadowing.items()

    def __iter__(self) -> Iterator[Any]:
        return self._items()

    @property
    def model_fields_set(self) -> Set[str]:
        """The names of the fields that were set explicitly."""
        return self._fields_set

    @property
    def model_extra(self) -> Optional[Dict[str, Any]]:
        """The values that do not belong to a field, or `None` if the class does not allow them."""
        if self._extra != "allow":
            return None
        fields = self._fields()
        return {name: value for name, value in self._items() if name not in fields}

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, BaseModel):
            return NotImplemented
        return type(self) is type(other) and dict(self._items()) == dict(other._items())

    __hash__ = None  # type: ignore[assignment]

    def __repr_args__(self) -> Iterator[Tuple[str, Any]]:
        yield from self._items()
        for name in self.model_computed_fields:
            yield name, getattr(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__repr_args__())})"

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self.__repr_args__())

    def __getstate__(self) -> Dict[str, Any]:
        values = {name: value for name, value in self.__dict__.items() if name != "_shadowing"}
        return {"values": {**values, **self._shadowing}, "fields_set": self._fields_set}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._set_values(state["values"])
        object.__setattr__(self, "_fields_set", state["fields_set"])

    # Serialization

    def _dump(self, options: DumpOptions) -> Any:
        fields = self._fields()
        if self._core is not None:
            return self._core.dump(self, options._asdict())
        dumped = {}
        for name, value in self._items():
            if options.exclude_unset and name not in self._fields_set:
                continue
            if options.exclude_none and value is None:
                continue
            if not options.keeps(name):
                continue
            if options.exclude_defaults and name in fields:
                default = fields[name].get_default()
                if default is not _MISSING and type(value) is type(default) and value == default:
                    continue
            shown = self._aliases.get(name, name) if options.by_alias else name
            dumped[shown] = dump_value(value, options.inside(name))
        return dumped

    def model_dump(
        self,
        *,
        mode: str = "python",
        include: Selection = None,
        exclude: Selection = None,
        by_alias: Optional[bool] = None,
        exclude_unset: Optional[bool] = None,
        exclude_defaults: bool = False,
        exclude_none: Optional[bool] = None,
        **_options: Any,
    ) -> Any:
        """Returns the fields as a dictionary. By default, payload types leave out fields that are unset or `None`."""
        exclude_unset = self._sparse if exclude_unset is None else exclude_unset
        exclude_none = self._sparse if exclude_none is None else exclude_none
        options = DumpOptions(mode, include, exclude, bool(by_alias), exclude_unset, exclude_defaults, exclude_none)
        return self._dump(options)

    def model_dump_json(self, *, indent: Optional[int] = None, **options: Any) -> str:
        """Returns the fields as JSON, with the options of `model_dump`."""
        options["mode"] = "json"
        return to_json(self.model_dump(**options), indent=indent)

    # Parsing

    @classmethod
    def model_validate(cls: Type[M], obj: Any, **_options: Any) -> M:
        """Creates a model from a dictionary. Returns an instance of the class as it is."""
        problems = Problems()
        instance = cls.__validate__(obj, (), problems)
        if problems.found:
            raise ValidationError(cls.__name__, problems.found)
        return typing.cast(M, instance)

    @classmethod
    def model_validate_json(cls: Type[M], json_data: Union[str, bytes, bytearray], **_options: Any) -> M:
        """Creates a model from JSON."""
        try:
            obj = json.loads(json_data)
        except ValueError as error:
            message = f"Invalid JSON: {error}"
            problem: Dict[str, Any] = {"type": "json_invalid", "loc": (), "msg": message, "input": json_data}
            raise ValidationError(cls.__name__, [problem]) from None
        return cls.model_validate(obj)

    @classmethod
    def model_validate_strings(cls: Type[M], obj: Any, **_options: Any) -> M:
        """Creates a model from a dictionary whose values are strings."""
        return cls.model_validate(obj)

    @classmethod
    def model_construct(cls: Type[M], _fields_set: Optional[Set[str]] = None, **values: Any) -> M:
        """Creates a model without validating the values."""
        instance = cls.__new__(cls)
        fields = cls._fields()
        attributes = instance.__dict__
        for name, field in fields.items():
            if name in values:
                attributes[name] = values[name]
            elif not field.is_required():
                attributes[name] = field.get_default()
        if cls._extra == "allow":
            instance._set_values(values)
        known = {name for name in values if name in fields or cls._extra == "allow"}
        object.__setattr__(instance, "_fields_set", known if _fields_set is None else _fields_set)
        if cls._has_post_init:
            instance._after_core(None)
        return instance

    def model_copy(self: M, *, update: Optional[Dict[str, Any]] = None, deep: bool = False) -> M:
        """Returns a copy, with the fields of `update` changed."""
        copied = self.__deepcopy__() if deep else self.__copy__()
        copied._set_values(update or {})
        copied._fields_set.update(update or {})
        return copied

    def __copy__(self: M) -> M:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        object.__setattr__(copied, "_fields_set", set(self._fields_set))
        return copied

    def __deepcopy__(self: M, memo: Optional[Dict[int, Any]] = None) -> M:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        object.__setattr__(copied, "_fields_set", set(self._fields_set))
        return copied

    # Schemas, which need pydantic, and support for fields of pydantic's models

    @classmethod
    def model_json_schema(cls, **options: Any) -> Dict[str, Any]:
        """Returns the JSON schema. Requires pydantic."""
        return json_schema(cls, **options)

    @classmethod
    def schema(cls, by_alias: bool = True, **_options: Any) -> Dict[str, Any]:
        """Returns the JSON schema. Requires pydantic."""
        return json_schema(cls, by_alias=by_alias)

    @classmethod
    def schema_json(cls, by_alias: bool = True, indent: Optional[int] = None, **_options: Any) -> str:
        """Returns the JSON schema as text. Requires pydantic."""
        return json.dumps(json_schema(cls, by_alias=by_alias), indent=indent)

    @classmethod
    def model_rebuild(cls, **_options: Any) -> Optional[bool]:
        """Reads the annotations again."""
        if "_field_table" in cls.__dict__:
            del cls._field_table  # type: ignore[attr-defined]
        cls._fields()
        return True

    @property
    def __pydantic_fields_set__(self) -> Set[str]:
        return self._fields_set

    @__pydantic_fields_set__.setter
    def __pydantic_fields_set__(self, value: Set[str]) -> None:
        object.__setattr__(self, "_fields_set", value)

    @property
    def __pydantic_extra__(self) -> Optional[Dict[str, Any]]:
        return self.model_extra

    @__pydantic_extra__.setter
    def __pydantic_extra__(self, value: Optional[Dict[str, Any]]) -> None:
        self.__dict__.update(value or {})

    @property
    def __pydantic_private__(self) -> Optional[Dict[str, Any]]:
        return None

    @__pydantic_private__.setter
    def __pydantic_private__(self, value: Optional[Dict[str, Any]]) -> None:
        self.__dict__.update(value or {})

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        return core_schema_of(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, handler: Any) -> Any:
        return json_schema_hook(cls, handler)


#: Sets the names of the fields of an instance that are set. Takes half the time of `object.__setattr__`.
set_fields: Callable[[BaseModel, Set[str]], None] = vars(BaseModel)["_fields_set"].__set__


def is_of_sdk(cls: type) -> bool:
    """Returns whether a class is part of the SDK, and therefore needs no feature of pydantic."""
    return cls.__module__.partition(".")[0] == "mlserver"


def _own_annotations(owner: type) -> Dict[str, Any]:
    """Returns the annotations of the class itself, without inherited ones."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(owner, format=annotationlib.Format.FORWARDREF)
    return typing.cast(Dict[str, Any], vars(owner).get("__annotations__", {}))


def _locals_of(cls: type) -> Dict[str, Any]:
    """Returns the variables of the function in which a class is being defined; empty for the top level of a module."""
    if "<locals>" not in cls.__qualname__:
        return {}
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame = frame.f_back  # type: ignore[assignment]
    return {} if frame is None else dict(frame.f_locals)


def _resolve(hint: Any, owner: Type[BaseModel], name: str) -> Any:
    """Evaluates those parts of an annotation that are strings."""
    if not _has_text(hint):
        return hint
    module, function = owner._namespaces
    if isinstance(hint, str) and re.match(r"(\w+\.)?ClassVar\b", hint):  # `typing` allows it only in classes
        return ClassVar

    def holder() -> None:
        """Holds the annotation, because `typing` evaluates those of functions and classes."""

    holder.__annotations__ = {"value": hint}
    try:
        return _type_hints(holder, module, {**function, owner.__name__: owner})["value"]
    except Exception as error:
        raise TypeError(f"cannot evaluate the annotation {hint!r} of `{owner.__qualname__}.{name}`: {error}") from error


def _has_text(hint: Any) -> bool:
    if isinstance(hint, (str, typing.ForwardRef)):
        return True
    return any(map(_has_text, typing.get_args(hint))) if typing.get_origin(hint) is not None else False


def _type_hints(holder: Any, module: Dict[str, Any], local: Dict[str, Any]) -> Dict[str, Any]:
    if sys.version_info >= (3, 9):
        return typing.get_type_hints(holder, module, local, include_extras=True)
    return typing.get_type_hints(holder, module, local)  # Python 3.8 always includes extras
