"""The type hints of functions of users, in all spellings that Python accepts."""

import inspect
import sys
import types
import typing
from typing import Any, Callable, Dict

__all__ = ["hints_of", "single"]


def hints_of(function: Callable[..., Any], include_extras: bool = False) -> Dict[str, Any]:
    """Returns the type hints by name. Those that are tuples stay tuples, also if they are written as text.

    Raises `NameError` for a name that is not defined.
    """
    original: Any = inspect.unwrap(function)
    if inspect.isclass(original):
        original = original.__init__
    space: Dict[str, Any] = getattr(original, "__globals__", {})
    try:
        found = _type_hints(original, None, include_extras)
    except TypeError:
        # A text that is not a type, such as `"(int, str)"`.
        annotations: Dict[str, Any] = getattr(original, "__annotations__", {})
        found = {name: _resolved(hint, space, include_extras) for name, hint in annotations.items()}
    return {
        name: type(hint)(_resolved(part, space, include_extras) for part in hint) if isinstance(hint, (tuple, list)) else hint
        for name, hint in found.items()
    }


def _resolved(hint: Any, space: Dict[str, Any], include_extras: bool) -> Any:
    if isinstance(hint, str):
        # As `typing.get_type_hints` does it: it is the code of the function's module.
        hint = eval(hint, space)
    if isinstance(hint, (tuple, list)):
        return type(hint)(_resolved(part, space, include_extras) for part in hint)
    return _type_hints(types.SimpleNamespace(__annotations__={"hint": hint}), space, include_extras)["hint"]


def _type_hints(target: Any, space: Any, include_extras: bool) -> Dict[str, Any]:
    if sys.version_info >= (3, 9):
        return typing.get_type_hints(target, space, include_extras=include_extras)
    return typing.get_type_hints(target, space)  # which always includes extras


def single(hint: Any) -> Any:
    """Returns the hint of one value, which may be written as a tuple of one."""
    if isinstance(hint, (tuple, list)):
        return hint[0] if len(hint) == 1 else Any
    return hint
