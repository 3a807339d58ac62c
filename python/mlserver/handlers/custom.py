"""Custom routes of models."""

from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from .._model import BaseModel
from ..model import MLModel

__all__ = ["CustomHandler", "custom_handler", "get_custom_handlers", "register_custom_handler"]

F = TypeVar("F", bound=Callable[..., Any])

_HANDLER_ATTRIBUTE = "__custom_handler__"


class CustomHandler(BaseModel):
    """The route of one method."""

    rest_path: str
    rest_method: str = "POST"


def custom_handler(rest_path: str, rest_method: str = "POST") -> Callable[[F], F]:
    """Makes a method of a model handle a REST route. If a method has several decorators, the outermost one counts.

    class Greeter(MLModel):
        @custom_handler(rest_path="/greet/{name}", rest_method="GET")
        async def greet(self, name: str, polite: bool = False) -> dict:
            return {"greeting": f"Good day, {name}" if polite else f"Hi, {name}"}
    """
    handler = CustomHandler(rest_path=rest_path, rest_method=rest_method)

    def decorate(method: F) -> F:
        return register_custom_handler(handler, method)

    return decorate


def register_custom_handler(handler: CustomHandler, method: F) -> F:
    """Sets the route of a method."""
    setattr(method, _HANDLER_ATTRIBUTE, handler)
    return method


def get_custom_handlers(model: MLModel) -> List[Tuple[CustomHandler, Callable[..., Any]]]:
    """Returns the routes of a model and the methods that handle them, sorted by the methods' names."""
    members: Dict[str, Any] = {}
    for base in reversed(type(model).__mro__):
        members.update(vars(base))
    handlers = []
    # Only what a class defines is looked at, and no property is called.
    for name in sorted(members):
        handler = _handler_of(members[name])
        if handler is not None:
            handlers.append((handler, getattr(model, name)))
    return handlers


def _handler_of(member: Any) -> Optional[CustomHandler]:
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    try:
        handler = getattr(member, _HANDLER_ATTRIBUTE, None)
    except Exception:  # an object of a user that delegates its attributes
        return None
    return handler if isinstance(handler, CustomHandler) else None
