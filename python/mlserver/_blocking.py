"""Coroutine functions that compute without waiting for anything.

The methods of the framework runtimes are coroutine functions, because subclasses of users await them. On an event loop
they would block it, so the worker runs them on the model's threads, like plain functions: the limits of queues,
priorities and timeouts then apply to their calls.
"""

import functools
import inspect
from typing import Any, Callable, TypeVar

__all__ = ["blocking", "completed", "is_async"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__mlserver_blocking__"


def blocking(function: F) -> F:
    """Marks a coroutine function that never waits."""
    setattr(function, _MARK, True)
    return function


def is_async(function: Any) -> bool:
    """Returns whether a function runs on an event loop: a coroutine function that is not marked.

    It may be a `functools.partial`, or an object with `__call__`.
    """
    original = _original(function)
    if not inspect.isroutine(original) and not isinstance(original, type):
        original = _original(inspect.getattr_static(type(original), "__call__", None))
    return inspect.iscoroutinefunction(original) and not _is_marked(original)


def _original(function: Any) -> Any:
    """Returns the function below decorators and partial functions."""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(function, functools.partial):
            function = function.func
        elif _has(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function


def _has(function: Any, name: str) -> bool:
    """Returns whether a function has an attribute. An object of a user may claim to have them all in `__getattr__`."""
    function = function.__func__ if inspect.ismethod(function) else function
    return inspect.getattr_static(function, name, None) is not None


#: How many decorators a function may have.
_MAX_WRAPPERS = 100


def _is_marked(function: Any) -> bool:
    return _has(function, _MARK) and getattr(function, _MARK) is True


def completed(function: F) -> F:
    """Returns a plain function that runs a marked coroutine function to its end. Returns other functions as they are."""
    if not _is_marked(_original(function)):
        return function

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        coroutine = function(*args, **named)
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        coroutine.close()
        raise RuntimeError(f"`{function.__qualname__}` waits, although it is marked as blocking")

    return run  # type: ignore[return-value]
