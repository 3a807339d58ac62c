"""Routes of a model's own."""

import inspect
from typing import Any, Callable, List, Tuple, TypeVar

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
    """Makes a method of a model answer the calls of a route. Of several on one method, the outermost counts."""
    handler = CustomHandler(rest_path=rest_path, rest_method=rest_method)

    def decorate(method: F) -> F:
        return register_custom_handler(handler, method)

    return decorate


def register_custom_handler(handler: CustomHandler, method: F) -> F:
    """Gives a method its route."""
    setattr(method, _HANDLER_ATTRIBUTE, handler)
    return method


def get_custom_handlers(model: MLModel) -> List[Tuple[CustomHandler, Callable[..., Any]]]:
    """Returns the routes of a model and its methods behind them, by the methods' names."""
    handlers = []
    for name, member in inspect.getmembers(type(model)):
        handler = getattr(member, _HANDLER_ATTRIBUTE, None)
        if isinstance(handler, CustomHandler):
            handlers.append((handler, getattr(model, name)))
    return handlers
