"""Signal handlers of models, which may run on any thread: Python sets handlers on the main thread only."""

import asyncio
import os
import signal
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any, Callable, Deque, List, Optional, Tuple

from .process_state import SERVER_SIGNALS, after_fork

#: Interrupts the main thread, also while it waits, so that it runs what another thread asks for. A program that a model starts
#: has its default action again.
_WAKE = signal.SIGRTMAX - 7 if hasattr(signal, "SIGRTMAX") else signal.SIGURG

#: How long a thread waits for the main thread, in seconds: it may run code that no signal interrupts.
_PATIENCE = 30.0

#: How long a thread waits before it interrupts the main thread again, in seconds.
_RETRY = 0.02

_CALLS = os.path.join(os.path.dirname(__file__), "calls.py")

_set = signal.signal
_get = signal.getsignal
_set_wakeup_fd = signal.set_wakeup_fd

#: What threads ask for: a function, where to put its result or its exception, and what ends the waiting.
_waiting: Deque[Tuple[Callable[[], Any], List[Any], threading.Event]] = deque()
#: The event loop of the main thread, once the functions below are installed.
_main_loop: Optional[asyncio.AbstractEventLoop] = None


class _Handler:
    """A handler of a user. What it raises must not end the worker."""

    __slots__ = ("given",)

    def __init__(self, given: Any) -> None:
        self.given = given

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        if not callable(self.given):
            return  # the default action would end the worker before its calls
        try:
            self.given(number, frame)
        except BaseException as error:
            if _main_loop is None:
                raise  # in a forked child
            is_servers = number in SERVER_SIGNALS
            if not is_servers and _is_in_call(frame):
                raise  # a timeout of the call that the signal has interrupted
            if not (is_servers and isinstance(error, (SystemExit, KeyboardInterrupt))):
                traceback.print_exc()


def _is_in_call(frame: Optional[FrameType]) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _CALLS:
            return True
        frame = frame.f_back
    return False


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Makes all functions of `signal` work on each thread. Called on the main thread, whose loop is `loop`."""
    global _main_loop
    _main_loop = loop
    _set(_WAKE, _run_waiting)
    signal.signal = set_handler  # type: ignore[assignment]
    signal.getsignal = get_handler  # type: ignore[assignment]
    signal.set_wakeup_fd = lambda *args, **named: on_main_thread(lambda: _set_wakeup_fd(*args, **named))
    after_fork(_restore)


def set_handler(number: Any, handler: Any) -> Any:
    """Sets the handler of a signal, and returns the previous one, as `signal.signal` does."""
    kept = handler
    if callable(handler) or (number in SERVER_SIGNALS and handler in (signal.SIG_DFL, signal.SIG_IGN)):
        kept = _Handler(handler)
    return _given(on_main_thread(lambda: _set(number, kept)))


def get_handler(number: Any) -> Any:
    """Returns the handler of a signal, as `signal.getsignal` does."""
    return _given(_get(number))


def _given(handler: Any) -> Any:
    return handler.given if isinstance(handler, _Handler) else handler


def serve_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Makes the methods for signals work on the loop of another thread. The loop calls the handlers."""
    main = _main_loop
    if main is None:
        return

    def add(number: int, callback: Callable[..., Any], *args: Any) -> None:
        on_main_thread(lambda: main.add_signal_handler(number, loop.call_soon_threadsafe, callback, *args))

    def remove(number: int) -> bool:
        removed: bool = on_main_thread(lambda: main.remove_signal_handler(number))
        return removed

    with suppress(AttributeError):  # a loop of another package, whose methods cannot be replaced
        loop.add_signal_handler = add  # type: ignore[assignment]
        loop.remove_signal_handler = remove  # type: ignore[method-assign,assignment]


def on_main_thread(function: Callable[[], Any]) -> Any:
    """Runs a function on the main thread, also if that is busy, and returns its result or raises its exception."""
    main = threading.main_thread().ident
    if main is None or threading.get_ident() == main:
        return function()
    result: List[Any] = []
    ended = threading.Event()
    asked = (function, result, ended)
    _waiting.append(asked)
    signal.pthread_kill(main, _WAKE)
    deadline = time.monotonic() + _PATIENCE
    while not ended.wait(_RETRY):
        if time.monotonic() > deadline:
            with suppress(ValueError):
                _waiting.remove(asked)
                raise RuntimeError(
                    f"the main thread of the worker could not set a signal handler for {_PATIENCE:g} seconds"
                )
        # A signal that arrives just before the main thread begins to wait does not end its wait.
        signal.pthread_kill(main, _WAKE)
    value, error = result
    if error is not None:
        raise error
    return value


def _run_waiting(_number: int, _frame: Optional[FrameType]) -> None:
    while _waiting:
        try:
            function, result, ended = _waiting.popleft()
        except IndexError:
            return
        try:
            result[:] = function(), None
        except BaseException as error:
            result[:] = None, error
        ended.set()


def _restore() -> None:
    """In a forked child, which is a program of the user's, signals have their usual effect."""
    global _main_loop
    _main_loop = None
    _waiting.clear()
    # `getsignal` still returns what users have given.
    signal.signal, signal.set_wakeup_fd = _set, _set_wakeup_fd
    for number in SERVER_SIGNALS:
        handler = _get(number)
        if isinstance(handler, _Handler) and not callable(handler.given):
            with suppress(ValueError, OSError):
                _set(number, handler.given)


__all__ = ["install", "on_main_thread", "serve_signals"]
