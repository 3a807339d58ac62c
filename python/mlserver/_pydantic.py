"""pydantic and FastAPI with the SDK's classes, which need neither.

If a subclass uses features of pydantic (`Field`, validators, computed fields, private attributes, options of `model_config`),
pydantic validates its instances: a hidden model with the same fields is created, and its schema fills instances of the
subclass. Hidden models also describe the SDK's classes in JSON schemas.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import typing
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ._validate import Loc, Problems, ValidationError

#: Options of `model_config` that the SDK follows itself, or that change nothing.
NATIVE_OPTIONS = frozenset(
    (
        "arbitrary_types_allowed",
        "env_file",
        "env_file_encoding",
        "env_prefix",
        "extra",
        "ignored_types",
        "json_schema_extra",
        "protected_namespaces",
        "title",
        "use_enum_values",
        "validate_default",
    )
)

#: Options of pydantic-settings, and the values that change nothing.
UNSUPPORTED_OPTIONS: Dict[str, Any] = {
    "case_sensitive": False,
    "cli_parse_args": None,
    "env_ignore_empty": False,
    "env_nested_delimiter": None,
    "env_parse_none_str": None,
    "json_file": None,
    "secrets_dir": None,
    "toml_file": None,
    "yaml_file": None,
}


def is_feature(value: Any) -> bool:
    """Returns whether the value of a class attribute is one of pydantic's, such as a `Field` or a validator."""
    return type(value).__module__.partition(".")[0] in ("pydantic", "pydantic_core")


def is_feature_hint(hint: Any) -> bool:
    """Returns whether only pydantic can validate an annotation: one with constraints, or with a type of pydantic."""
    if hasattr(hint, "__metadata__"):
        return True
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__module__.partition(".")[0] == "pydantic" and hint.__name__ != "BaseModel"
    return any(map(is_feature_hint, typing.get_args(hint)))


def require(cls: type, what: str) -> Any:
    """Returns pydantic, or raises `TypeError` because a class uses `what`."""
    try:
        import pydantic
    except ImportError:
        raise TypeError(f"`{cls.__qualname__}` uses {what}, which needs pydantic 2: install it, or remove it") from None
    if not hasattr(pydantic, "TypeAdapter"):
        raise TypeError(f"`{cls.__qualname__}` uses {what}, which needs pydantic 2, not {pydantic.VERSION}")
    return pydantic


class Core:
    """The hidden model of a class, and what fills instances of the class."""

    def __init__(self, cls: Any) -> None:
        pydantic = require(cls, "features of pydantic")
        from pydantic_core import SchemaValidator

        self.cls = cls
        self.model = _hidden_model(cls, pydantic)
        schema = _with_class(self.model.__pydantic_core_schema__, self.model, cls)
        self._validator = SchemaValidator(schema)
        self.fields: Dict[str, Any] = _fields_of(self.model)
        config = self.model.model_config
        #: Whether assignments are validated, or rejected.
        self.checks_assignment = bool(
            config.get("validate_assignment")
            or config.get("frozen")
            or any(field.frozen for field in self.fields.values())
        )

    def fill(self, instance: Any, values: Dict[str, Any], loc: Loc, problems: Problems) -> None:
        """Validates values, and sets the fields of an instance."""
        self._run(lambda: self._validator.validate_python(values, self_instance=instance), loc, problems)

    def assign(self, instance: Any, name: str, value: Any) -> None:
        """Validates a value, and sets a field of an instance."""
        problems = Problems()
        if self.model.model_config.get("frozen"):
            problems.add("frozen_instance", (name,), "Instance is frozen", value)
        elif name in self.fields and self.fields[name].frozen:
            problems.add("frozen_field", (name,), "Field is frozen", value)
        elif not self.model.model_config.get("validate_assignment"):
            instance.__dict__[name] = value
            instance._fields_set.add(name)
        else:
            self._run(lambda: self._validator.validate_assignment(instance, name, value), (), problems)
        if problems.found:
            raise ValidationError(type(instance).__name__, problems.found)

    @staticmethod
    def _run(validate: Callable[[], Any], loc: Loc, problems: Problems) -> None:
        from pydantic_core import ValidationError as CoreValidationError

        try:
            validate()
        except CoreValidationError as error:
            for problem in error.errors():
                problems.add(problem["type"], (*loc, *problem["loc"]), problem["msg"], problem.get("input"))

    def dump(self, instance: Any, options: Dict[str, Any]) -> Any:
        """Returns the fields of an instance as a dictionary, with pydantic's serializers and computed fields."""
        view = self.model.__new__(self.model)
        values = instance.__dict__
        extra = {
            name: value for name, value in values.items() if name not in self.fields and name not in instance._private
        }
        private = {name: value for name, value in values.items() if name in instance._private}
        fields = {name: values[name] for name in self.fields if name in values}
        object.__setattr__(view, "__dict__", fields)
        object.__setattr__(view, "__pydantic_extra__", extra if instance._extra == "allow" else None)
        object.__setattr__(view, "__pydantic_fields_set__", set(instance._fields_set))
        object.__setattr__(view, "__pydantic_private__", private or None)
        return view.model_dump(**options, warnings=False)

    def aliases(self, name: str) -> Tuple[Tuple[str, ...], Optional[str]]:
        """Returns the names of a field in values, and its name in a dump."""
        field = self.fields[name]
        given = field.validation_alias or field.alias
        choices = [given] if isinstance(given, str) else [] if given is None else getattr(given, "choices", [])
        names = [choice for choice in choices if isinstance(choice, str)]
        return tuple(names), field.serialization_alias or field.alias


def _fields_of(model: Any) -> Dict[str, Any]:
    return dict(getattr(model, "__pydantic_fields__", None) or model.model_fields)


def _hidden_model(cls: Any, pydantic: Any) -> Any:
    """Returns a pydantic model with the fields, validators and methods of a class."""
    from ._model import _MISSING, BaseModel, Factory, _own_annotations, _resolve, is_of_sdk

    namespace: Dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    annotations: Dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if owner is object or owner is BaseModel or not issubclass(owner, BaseModel):
            continue
        known = is_of_sdk(owner)
        own = _own_annotations(owner)
        for name, value in vars(owner).items():
            if name.startswith("__") or name in own or name in ("model_config", "Config") or name in _internals():
                continue
            if name.startswith("_") and (known or name in owner._private):
                continue
            if not hasattr(pydantic.BaseModel, name):
                namespace[name] = value
        for name, hint in own.items():
            if name in _internals() or name == "model_config" or name.startswith("_"):
                continue
            hint = _resolve(hint, owner, name)
            default = vars(owner).get(name, _MISSING)
            if typing.get_origin(hint) is typing.ClassVar or hint is typing.ClassVar:
                if default is not _MISSING:
                    namespace[name] = default
                continue
            annotations[name] = hint
            namespace.pop(name, None)
            alias = cls._aliases.get(name)
            if isinstance(default, property) or hasattr(default, "__set__"):
                default = _MISSING
            if isinstance(default, Factory):
                default = pydantic.Field(default_factory=default.make)
            elif alias is not None:
                default = pydantic.Field(... if default is _MISSING else default, alias=alias)
            if default is not _MISSING:
                namespace[name] = default
        if not known and owner.__doc__:
            namespace["__doc__"] = owner.__doc__
    namespace["__annotations__"] = annotations
    if sys.version_info >= (3, 14):
        namespace["__annotate__"] = lambda _format: annotations
    config = {
        "protected_namespaces": (),
        "arbitrary_types_allowed": True,
        **{name: value for name, value in cls.model_config.items() if name not in ("env_prefix", "env_file")},
        "extra": cls._extra,
    }
    namespace["model_config"] = {
        name: value for name, value in config.items() if name not in UNSUPPORTED_OPTIONS and name != "env_file_encoding"
    }
    if cls.model_post_init is not BaseModel.model_post_init or cls._private_defaults:
        namespace["model_post_init"] = _post_init
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(pydantic.BaseModel)(cls.__name__, (pydantic.BaseModel,), namespace)


def _post_init(_self: Any, _context: Any) -> None:
    """Makes the schema call `_after_core` of the SDK's class, which calls its `model_post_init`."""


def _internals() -> Set[str]:
    from ._model import INTERNAL_NAMES

    return INTERNAL_NAMES


def _with_class(schema: Any, model: Any, cls: Any) -> Any:
    """Returns a core schema that creates instances of `cls` instead of `model`."""
    if isinstance(schema, dict):
        copied = {name: _with_class(value, model, cls) for name, value in schema.items() if name != "metadata"}
        if copied.get("cls") is model:
            copied["cls"] = cls
            if copied.get("post_init"):
                copied["post_init"] = "_after_core"
        return copied
    if isinstance(schema, list):
        return [_with_class(item, model, cls) for item in schema]
    if type(schema) is tuple:
        return tuple(_with_class(item, model, cls) for item in schema)
    return schema


# Schemas


def core_schema_of(cls: Any) -> Any:
    """Returns the core schema of a class, for pydantic's models and adapters."""
    from pydantic_core import core_schema

    return core_schema.no_info_plain_validator_function(
        _validated_by(cls),
        ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
        serialization=core_schema.plain_serializer_function_ser_schema(_serialize, info_arg=True),
    )


def _serialize(model: Any, info: Any) -> Any:
    return model.model_dump(
        mode=info.mode,
        include=info.include,
        exclude=info.exclude,
        by_alias=bool(info.by_alias),
        exclude_unset=info.exclude_unset,
        exclude_defaults=info.exclude_defaults,
        exclude_none=info.exclude_none,
    )


def _validated_by(cls: Any) -> Callable[[Any], Any]:
    """Returns a validator that reports each problem of a value to pydantic."""

    def validate(value: Any) -> Any:
        from pydantic_core import InitErrorDetails, PydanticCustomError
        from pydantic_core import ValidationError as CoreValidationError

        problems = Problems()
        found = cls.__validate__(value, (), problems)
        if problems.found:
            details = [
                InitErrorDetails(type=PydanticCustomError(each["type"], each["msg"]), loc=each["loc"], input=each["input"])
                for each in problems.found
            ]
            raise CoreValidationError.from_exception_data(cls.__name__, details)
        return found

    return validate


def json_schema(cls: Any, **options: Any) -> Dict[str, Any]:
    """Returns the JSON schema of a class."""
    pydantic = require(cls, "a JSON schema")
    found: Dict[str, Any] = pydantic.TypeAdapter(cls).json_schema(**options)
    return found


def json_schema_hook(cls: Any, handler: Any) -> Any:
    """Returns the JSON schema of a class inside of another schema."""
    return handler(_without_ref(hidden_model_of(cls).__pydantic_core_schema__))


def _without_ref(schema: Any) -> Any:
    """Returns a core schema without the name of the hidden model, which would be a second one for the same class."""
    if schema["type"] == "definitions":
        return {**schema, "schema": _without_ref(schema["schema"])}
    return {name: value for name, value in schema.items() if name != "ref"}


def hidden_model_of(cls: Any) -> Any:
    """Returns the hidden model of a class. It is created once."""
    found = cls.__dict__.get("_hidden_model")
    if found is None:
        cls._fields()
        core = cls._core
        found = core.model if core is not None else _hidden_model(cls, require(cls, "a JSON schema"))
        cls._hidden_model = found
    return found


# FastAPI


def encode_in_fastapi(kind: type, encode: Callable[[Any], Any]) -> None:
    """Makes FastAPI's `jsonable_encoder` encode instances of a class, also if FastAPI is imported later."""

    def register(module: Any) -> None:
        encoders = getattr(module, "ENCODERS_BY_TYPE", None)
        if isinstance(encoders, dict):
            encoders[kind] = encode

    if "fastapi.encoders" in sys.modules:
        register(sys.modules["fastapi.encoders"])
    else:
        sys.meta_path.insert(0, _AfterImport("fastapi.encoders", register))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been imported."""

    def __init__(self, name: str, function: Callable[[Any], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                break
        else:
            return None
        execute = getattr(spec.loader, "exec_module", None)
        if execute is not None:

            def exec_module(module: Any) -> None:
                execute(module)
                self._function(module)

            with contextlib.suppress(AttributeError):
                spec.loader.exec_module = exec_module  # of this one loader
        return spec


# Dataclasses: FastAPI reads an argument from the body if its class is a model of pydantic or a dataclass.


class DataclassFields:
    """`__dataclass_fields__` of a class: its fields, and for an instance also its extra values."""

    def __get__(self, instance: Any, owner: Any) -> Dict[str, Any]:
        import dataclasses

        names: Iterator[str] = iter(owner._fields()) if instance is None else (name for name, _ in instance._items())
        fields: Dict[str, Any] = {}
        for name in names:
            field: Any = dataclasses.field(default=None)
            field.name = name
            field.type = Any
            field._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
            fields[name] = field
        return fields


class NotADataclass:
    """Hides `__dataclass_fields__` of a base class."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        raise AttributeError("__dataclass_fields__")


def unsupported_options(config: Dict[str, Any]) -> List[str]:
    """Returns the names of options that are set but not followed."""
    return [name for name, neutral in UNSUPPORTED_OPTIONS.items() if config.get(name, neutral) not in (neutral, None)]
