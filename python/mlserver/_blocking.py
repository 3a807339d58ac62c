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
    """Returns whether a function runs on an event loop: a coroutine function that is not marked."""
    original = inspect.unwrap(function)
    return inspect.iscoroutinefunction(original) and not getattr(original, _MARK, False)


def completed(function: F) -> F:
    """Returns a plain function that runs a marked coroutine function to its end. Returns other functions as they are."""
    if not getattr(inspect.unwrap(function), _MARK, False):
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
