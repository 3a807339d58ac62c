"""Validators of annotated fields.

A validator takes a value and its location, and returns the converted value. It appends to a list of problems instead of
raising, so that one `ValidationError` reports all of them. The rules are those of pydantic's lax mode, as in the original:
numbers in strings become numbers, and tuples become lists.
"""

import dataclasses
import datetime
import decimal
import enum
import json
import operator
import pathlib
import sys
import typing
import uuid
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

Loc = Tuple[Union[str, int], ...]
Validator = Callable[[Any, Loc, "Problems"], Any]

_TRUE = frozenset(("true", "1", "yes", "on", "t", "y"))
_FALSE = frozenset(("false", "0", "no", "off", "f", "n"))


class Problems:
    """The problems found so far while one model is validated."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: List[Dict[str, Any]] = []

    def add(self, kind: str, loc: Loc, message: str, value: Any) -> None:
        """Records one problem of `kind` with the value at `loc`."""
        self.found.append({"type": kind, "loc": loc, "msg": message, "input": value})


class ValidationError(ValueError):
    """Raised for invalid values of a model, with each field and its problem."""

    def __init__(self, title: str, problems: Iterable[Dict[str, Any]]) -> None:
        self.title = title
        self._problems = list(problems)
        super().__init__(title, self._problems)

    def errors(self, **_options: Any) -> List[Dict[str, Any]]:
        """Returns one dictionary per problem: `type`, `loc`, `msg` and `input`."""
        return [dict(problem) for problem in self._problems]

    def error_count(self) -> int:
        """Returns the number of problems."""
        return len(self._problems)

    def json(self, **_options: Any) -> str:
        """Returns the problems as JSON."""
        return json.dumps(self._problems, default=repr)

    def __str__(self) -> str:
        count = len(self._problems)
        lines = [f"{count} validation error{'' if count == 1 else 's'} for {self.title}"]
        for problem in self._problems:
            if problem["loc"]:
                lines.append(".".join(str(part) for part in problem["loc"]))
            value = problem["input"]
            lines.append(
                f"  {problem['msg']} [type={problem['type']}, input_value={_shorten(repr(value))},"
                f" input_type={type(value).__name__}]"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _shorten(text: str, longest: int = 50) -> str:
    """Removes the middle of a long text, so that a message never repeats a whole tensor."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def any_value(value: Any, _loc: Loc, _problems: Problems) -> Any:
    """Accepts every value."""
    return value


def string(value: Any, loc: Loc, problems: Problems) -> Any:
    """Accepts strings, and bytes in UTF-8."""
    if isinstance(value, str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            problems.add(
                "string_unicode",
                loc,
                "Input should be a valid string, unable to parse raw data as a unicode string",
                value,
            )
            return value
    if isinstance(value, pathlib.PurePath):
        return str(value)
    problems.add("string_type", loc, "Input should be a valid string", value)
    return value


def integer(value: Any, loc: Loc, problems: Problems) -> Any:
    """Accepts integers and values that are equal to one: `1.0`, `"3"`, `True`."""
    if type(value) is int:
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        finite = value == value and value not in (float("inf"), float("-inf"))
        if finite:
            problems.add(
                "int_from_float", loc, "Input should be a valid integer, got a number with a fractional part", value
            )
        else:
            problems.add("finite_number", loc, "Input should be a finite number", value)
        return value
    if isinstance(value, (str, bytes)):
        try:
            return int(value)
        except ValueError:
            problems.add(
                "int_parsing", loc, "Input should be a valid integer, unable to parse string as an integer", value
            )
            return value
    try:
        return int(operator.index(value))
    except TypeError:
        problems.add("int_type", loc, "Input should be a valid integer", value)
        return value


def number(value: Any, loc: Loc, problems: Problems) -> Any:
    """Accepts numbers, and strings that contain one."""
    if isinstance(value, (str, bytes)):
        try:
            return float(value)
        except ValueError:
            problems.add(
                "float_parsing", loc, "Input should be a valid number, unable to parse string as a number", value
            )
            return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        problems.add("float_type", loc, "Input should be a valid number", value)
        return value


def boolean(value: Any, loc: Loc, problems: Problems) -> Any:
    """Accepts booleans, 0 and 1, and the usual words for them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
    if isinstance(value, (int, float, str)):
        problems.add("bool_parsing", loc, "Input should be a valid boolean, unable to interpret input", value)
    else:
        problems.add("bool_type", loc, "Input should be a valid boolean", value)
    return value


def none(value: Any, loc: Loc, problems: Problems) -> Any:
    """Accepts only `None`."""
    if value is not None:
        problems.add("none_required", loc, "Input should be None", value)
    return value


def _list_of(item: Validator, make: Callable[[Iterable[Any]], Any] = list) -> Validator:
    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if isinstance(value, (str, bytes, bytearray, dict)) or not hasattr(value, "__iter__"):
            problems.add("list_type", loc, "Input should be a valid list", value)
            return value
        return make([item(element, (*loc, index), problems) for index, element in enumerate(value)])

    return check


def _dict_of(key: Validator, item: Validator) -> Validator:
    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if not isinstance(value, typing.Mapping):
            problems.add("dict_type", loc, "Input should be a valid dictionary", value)
            return value
        return {
            key(name, (*loc, str(name), "[key]"), problems): item(element, (*loc, str(name)), problems)
            for name, element in value.items()
        }

    return check


def _union_of(members: List[Tuple[Any, Validator]]) -> Validator:
    exact = tuple(hint for hint, _ in members if isinstance(hint, type))

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if exact and type(value) in exact:
            for hint, validator in members:
                if hint is type(value):
                    return validator(value, loc, problems)
        attempts: List[Problems] = []
        for _, validator in members:
            attempt = Problems()
            kept = validator(value, loc, attempt)
            if not attempt.found:
                return kept
            attempts.append(attempt)
        for attempt in attempts:
            problems.found.extend(attempt.found)
        return value

    return check


def _optional_of(validator: Validator) -> Validator:
    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        return None if value is None else validator(value, loc, problems)

    return check


def _one_of(kind: "type[enum.Enum]", as_value: bool) -> Validator:
    names = [repr(member.value) for member in kind]
    expected = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    message = f"Input should be {expected}"

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        try:
            member = kind(value)
        except ValueError:
            problems.add("enum", loc, message, value)
            return value
        return member.value if as_value else member

    return check


def _literal_of(choices: Tuple[Any, ...]) -> Validator:
    message = f"Input should be {' or '.join(repr(choice) for choice in choices)}"

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if value not in choices:
            problems.add("literal_error", loc, message, value)
        return value

    return check


def _instance_of(kind: type) -> Validator:
    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if not isinstance(value, kind):
            problems.add("is_instance_of", loc, f"Input should be an instance of {kind.__name__}", value)
        return value

    return check


def _path(value: Any, loc: Loc, problems: Problems) -> Any:
    if isinstance(value, (str, pathlib.PurePath)):
        return pathlib.Path(value)
    problems.add("path_type", loc, "Input is not a valid path", value)
    return value


def _parsed_by(kind: type, parse: Callable[[Any], Any]) -> Validator:
    """Returns the validator of a class whose values are written as text."""
    name = kind.__name__.lower()
    sources = (str,) if kind in (uuid.UUID, datetime.date, datetime.time) else (str, int, float)

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if type(value) is kind or (isinstance(value, kind) and kind is not datetime.date):
            return value
        try:
            if isinstance(value, bool) or not isinstance(value, sources):
                raise TypeError(type(value).__name__)
            return parse(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            problems.add(f"{name}_parsing", loc, f"Input should be a valid {name}: {error}", value)
            return value

    return check


def _iso(kind: Any) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if not isinstance(value, str):
            return datetime.datetime.fromtimestamp(value, datetime.timezone.utc)
        # Python reads the `Z` of UTC only from 3.11 on.
        return kind.fromisoformat(value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value)

    return parse


def _seconds(value: Any) -> datetime.timedelta:
    return datetime.timedelta(seconds=float(value))


def _dataclass_of(kind: Any) -> Validator:
    """Returns the validator of a dataclass, which creates an instance from a dictionary."""
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    validators = {field.name: validator_for(hints[field.name], enums_as_values=False) for field in fields}
    required = [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, typing.Mapping):
            problems.add("dataclass_type", loc, f"Input should be a dictionary or an instance of {kind.__name__}", value)
            return value
        found = len(problems.found)
        values = {
            name: validator(value[name], (*loc, name), problems) for name, validator in validators.items() if name in value
        }
        for name in required:
            if name not in values:
                problems.add("missing", (*loc, name), "Field required", value)
        return value if len(problems.found) > found else kind(**values)

    return check


_PLAIN: Dict[Any, Validator] = {
    Any: any_value,
    object: any_value,
    str: string,
    int: integer,
    float: number,
    bool: boolean,
    None: none,
    type(None): none,
    list: _list_of(any_value),
    dict: _dict_of(any_value, any_value),
    tuple: _list_of(any_value, tuple),
    set: _list_of(any_value, set),
    pathlib.Path: _path,
    datetime.datetime: _parsed_by(datetime.datetime, _iso(datetime.datetime)),
    datetime.date: _parsed_by(datetime.date, _iso(datetime.date)),
    datetime.time: _parsed_by(datetime.time, _iso(datetime.time)),
    datetime.timedelta: _parsed_by(datetime.timedelta, _seconds),
    decimal.Decimal: _parsed_by(decimal.Decimal, lambda value: decimal.Decimal(str(value))),
    uuid.UUID: _parsed_by(uuid.UUID, uuid.UUID),
}


def from_pydantic(validate: Callable[[Any], Any]) -> Validator:
    """Converts a validation method of pydantic to a validator."""

    def check(value: Any, loc: Loc, problems: Problems) -> Any:
        try:
            return validate(value)
        except ValueError as error:
            errors = getattr(error, "errors", None)
            if errors is None:
                raise
            for problem in errors():
                problems.add(problem["type"], (*loc, *problem["loc"]), problem["msg"], problem.get("input", value))
            return value

    return check


def is_union(hint: Any) -> bool:
    """Returns whether `hint` is a union, in either spelling."""
    origin = typing.get_origin(hint)
    if origin is Union:
        return True
    return sys.version_info >= (3, 10) and type(hint).__name__ == "UnionType"


def validator_for(hint: Any, enums_as_values: bool = True) -> Validator:
    """Returns the validator of an annotation. For unknown classes, it only checks the class of the value."""
    try:
        plain = _PLAIN.get(hint)
    except TypeError:  # an unhashable annotation
        return any_value
    if plain is not None:
        return plain
    validate = getattr(hint, "__validate__", None)
    if validate is not None:
        return typing.cast(Validator, validate)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if is_union(hint):
        rest = [arg for arg in args if arg is not type(None)]
        members = [(arg, validator_for(arg, enums_as_values)) for arg in rest]
        inner = members[0][1] if len(members) == 1 else _union_of(members)
        return inner if len(rest) == len(args) else _optional_of(inner)
    if origin is not None and args:
        return _generic(origin, args, enums_as_values)
    if isinstance(hint, type):
        validate = getattr(hint, "model_validate", None) or getattr(hint, "parse_obj", None)
        if validate is not None:
            return from_pydantic(validate)
        if dataclasses.is_dataclass(hint):
            return _dataclass_of(hint)
        return _one_of(hint, enums_as_values) if issubclass(hint, enum.Enum) else _instance_of(hint)
    return any_value


def _generic(origin: Any, args: Tuple[Any, ...], enums_as_values: bool) -> Validator:
    """Returns the validator of a subscripted annotation such as `List[int]`."""
    if getattr(typing, "Literal", None) is origin:
        return _literal_of(args)
    if type(origin).__name__ == "_AnnotatedAlias" or hasattr(origin, "__metadata__"):
        return validator_for(args[0], enums_as_values)
    if not isinstance(origin, type):
        return any_value
    item: Optional[Validator] = validator_for(args[0], enums_as_values) if args[0] is not ... else None
    if item is None or issubclass(origin, type):
        return any_value
    if issubclass(origin, dict) or origin in (typing.get_origin(typing.Mapping[str, int]),):
        return _dict_of(item, validator_for(args[1], enums_as_values))
    if issubclass(origin, (set, frozenset)):
        return _list_of(item, origin)
    if issubclass(origin, tuple):
        return _list_of(item if len(args) == 2 and args[1] is ... else any_value, tuple)
    if issubclass(origin, list) or origin in (
        typing.get_origin(typing.Sequence[int]),
        typing.get_origin(typing.Iterable[int]),
    ):
        return _list_of(item)
    return any_value
