"""Dumps models and other values as Python's values and as JSON."""

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import math
import os
import re
import types
import typing
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, Union

Selection = Union[None, Set[Any], "frozenset[Any]", Dict[Any, Any], List[Any], Tuple[Any, ...]]

_ADDRESSES = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)

_VIEWS = (collections.abc.KeysView, collections.abc.ValuesView)

_PLAIN_TYPES = frozenset((int, float, bool, str, type(None)))


class DumpOptions(NamedTuple):
    """The options of `model_dump`."""

    #: "python", or "json" for values that JSON has.
    mode: str = "python"
    include: Selection = None
    exclude: Selection = None
    by_alias: bool = False
    exclude_unset: bool = False
    exclude_defaults: bool = False
    exclude_none: bool = False

    def keeps(self, name: Any) -> bool:
        """Returns whether a field or an item is part of a dump; "__all__" stands for every item of a list."""
        include, exclude = self.include, self.exclude
        if include is not None and name not in include and "__all__" not in include:
            return False
        if exclude is None or (name not in exclude and "__all__" not in exclude):
            return True
        # A selection inside the field does not exclude the field itself.
        return _of_item(exclude, name) is not None

    def inside(self, name: Any) -> "DumpOptions":
        """Returns the options for what is inside a field or an item."""
        if self.include is None and self.exclude is None:
            return self
        return self._replace(include=_of_item(self.include, name), exclude=_of_item(self.exclude, name))


class Dumped:
    """The interface of objects that can be dumped: `BaseModel`, whose module uses this one."""

    __slots__ = ()

    def _dump(self, options: DumpOptions) -> Any:
        raise NotImplementedError


def _of_item(selection: Selection, name: Any) -> Selection:
    """Returns the selection that applies inside a field or an item, or `None`."""
    if not isinstance(selection, dict):
        return None
    inner = selection.get(name, selection.get("__all__"))
    return inner if isinstance(inner, (set, frozenset, dict, list, tuple)) else None


def dump_value(value: Any, options: DumpOptions) -> Any:
    """Returns a value with the models inside it dumped."""
    if isinstance(value, Dumped):
        return value._dump(options)
    if isinstance(value, (list, tuple)):
        is_whole = options.include is None and options.exclude is None
        if options.mode == "python" and is_whole and not _holds_models(value):
            return value
        dumped = [dump_value(item, options.inside(index)) for index, item in enumerate(value) if options.keeps(index)]
        return dumped if isinstance(value, list) or options.mode == "json" else tuple(dumped)
    if isinstance(value, dict):
        return {name: dump_value(item, options.inside(name)) for name, item in value.items() if options.keeps(name)}
    return dumped_json(value) if options.mode == "json" else value


def _holds_models(values: Any) -> bool:
    """Returns whether `values` contains models or containers. Lists of numbers, as in tensors, are not copied."""
    return any(isinstance(item, (Dumped, list, tuple, dict)) for item in values)


def jsonable(value: Any) -> Any:
    """Converts a value to types of JSON, as FastAPI does: bytes to text, NumPy's scalars to numbers and its arrays to lists."""
    return _converted(value, jsonable)


def dumped_json(value: Any) -> Any:
    """Converts a value to types of JSON, as `model_dump` does.

    Times in UTC end in `Z`, durations have the form of ISO 8601, and decimal numbers are text.
    """
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, (datetime.datetime, datetime.time)):
        text = value.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    if type(value) is complex:
        return str(value).strip("()")
    return _converted(value, dumped_json)


def _duration(value: datetime.timedelta) -> str:
    """Returns a duration in ISO 8601, in days and smaller units."""
    sign, value = ("-", -value) if value.days < 0 else ("", value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{value.microseconds:06d}" if value.microseconds else ""
    parts = [
        f"{hours}H" if hours else "",
        f"{minutes}M" if minutes else "",
        f"{seconds}{fraction}S" if seconds or fraction else "",
    ]
    time = "".join(parts)
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}{'T' if time else ''}{time}" if days or time else "PT0S"


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Converts a value, and those inside it with `convert`."""
    if value is None or isinstance(value, (str, bool, int)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Dumped):
        return value._dump(DumpOptions(mode="json"))
    if isinstance(value, dict):
        return {str(name): convert(item) for name, item in value.items()}
    if type(value) is list and _is_plain(value):
        return value.copy()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [convert(item) for item in value]
    kind = type(value)
    if hasattr(kind, "model_dump"):  # a pydantic model of the user
        return convert(value.model_dump(by_alias=True))
    if hasattr(kind, "__fields__") and hasattr(kind, "dict"):  # of pydantic 1
        return convert(value.dict(by_alias=True))
    if dataclasses.is_dataclass(kind):
        return {field.name: convert(getattr(value, field.name)) for field in dataclasses.fields(kind)}
    if isinstance(value, decimal.Decimal):
        return convert(int(value) if value.as_tuple().exponent == 0 else float(value))
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (types.GeneratorType, collections.deque, *_VIEWS)):
        return [convert(item) for item in value]
    if isinstance(value, (uuid.UUID, *_ADDRESSES)):
        return str(value)
    if isinstance(value, re.Pattern):
        return convert(value.pattern)
    for method in ("tolist", "isoformat"):
        found = getattr(value, method, None)
        if found is not None:
            return convert(found())
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    raise TypeError(f"Unable to serialize unknown type: {type(value)}")


def _is_plain(values: List[Any]) -> bool:
    """Returns whether JSON can hold the items of a list as they are. A visit of each item would take ten times as long."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_TYPES:
        return False
    if float not in kinds:
        return True
    numbers = values if kinds == {float} else [value for value in values if type(value) is float]
    return all(map(math.isfinite, numbers))


def to_json(value: Any, indent: Optional[int] = None) -> str:
    """Returns compact JSON of a result of `jsonable`, without escapes of non-ASCII characters."""
    if indent is None and _is_large(value):
        try:
            # pydantic, if it is installed, writes floating-point numbers ten times as fast as the standard library.
            import pydantic_core

            return typing.cast(bytes, pydantic_core.to_json(value)).decode()
        except (ImportError, ValueError):  # `ValueError` is raised for half of a surrogate pair
            pass
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=indent, allow_nan=False)


def _is_large(value: Any) -> bool:
    """Returns whether a list in `value` has so many items that the import of another encoder is worth its time."""
    if type(value) is dict:
        return any(map(_is_large, value.values()))
    if type(value) is list:
        return len(value) > 10_000 or any(_is_large(item) for item in value if type(item) in (dict, list))
    return False
