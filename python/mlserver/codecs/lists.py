"""Helpers for lists."""

from typing import Any, Iterator, TypeVar

from .._tensor import BytesElements, FixedElements
from ..types import TensorData

__all__ = ["as_list", "as_values", "is_list_of"]

ListElement = TypeVar("ListElement")


def is_list_of(payload: Any, instance_type: type) -> bool:
    """Returns whether `payload` is a list whose items all have that type. The empty list counts."""
    return isinstance(payload, list) and all(isinstance(item, instance_type) for item in payload)


def as_list(payload: Any) -> Iterator[Any]:
    """Yields the items of a list. A single value, such as a string, is one item."""
    held = payload.raw if isinstance(payload, TensorData) else payload
    if isinstance(held, (list, BytesElements, FixedElements)):
        yield from held
    else:
        yield held


def as_values(payload: Any, *single: type) -> Any:
    """Returns the values to encode. One value of the types `single` is a list of one."""
    return [payload] if isinstance(payload, single) else payload
