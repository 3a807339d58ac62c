"""Describes exceptions of user code for `error` frames. Nothing here raises, whatever the exception does."""

import asyncio
import importlib
import operator
import os
import traceback
from types import TracebackType
from typing import Any, Dict, List, Optional

from ..errors import MLServerError
from .frames import FrameError

_WORKER_FOLDER = os.path.dirname(__file__)
_SDK_PREFIX = os.path.join(os.path.dirname(_WORKER_FOLDER), "")
_IMPORT_MACHINERY = importlib.__file__

#: Messages are cut to this many characters, and tracebacks to this many; the innermost frames are at the end.
_MAX_MESSAGE = 64 << 10
_MAX_TRACEBACK = 16 << 10
#: The messages of this many exceptions of a chain or group are cut.
_MAX_CHAIN = 1_000


def describe(error: BaseException, is_cancelled: bool) -> Dict[str, Any]:
    """Returns the head of the `error` frame for an exception that a call has raised.

    A `CancelledError` ends the call as cancelled only if the server has cancelled it. Otherwise, user code has raised it.
    """
    if isinstance(error, asyncio.CancelledError) and is_cancelled:
        return _head("cancelled", 500, "the call was cancelled")
    if isinstance(error, FrameError):
        return _head("request", 500, _text(error))
    if isinstance(error, MLServerError):
        return _head("mlserver", _status(error), _text(error), _traceback(error))
    if is_http_exception(error):
        detail = getattr(error, "detail", None)
        return _head("mlserver", _status(error), detail if isinstance(detail, str) else _text(error), _traceback(error))
    cause = error.__cause__
    if isinstance(cause, (StopIteration, StopAsyncIteration)) and _user_frames(error.__traceback__) is None:
        # Python replaces these exceptions when they leave a coroutine; here, a coroutine of the worker.
        error = cause
    return _head("model", 500, f"{_class_name(error)}: {_text(error)}", _traceback(error))


def is_http_exception(error: BaseException) -> bool:
    """Returns whether an exception is an `HTTPException` of Starlette or FastAPI, which need not be installed."""
    bases = type(error).__mro__
    return any(base.__module__ == "starlette.exceptions" and base.__name__ == "HTTPException" for base in bases)


def _head(kind: str, status: int, message: str, trace: str = "") -> Dict[str, Any]:
    head = {"kind": kind, "status": status, "message": message[:_MAX_MESSAGE]}
    if trace:
        head["traceback"] = trace[-_MAX_TRACEBACK:]
    return head


def _status(error: BaseException) -> int:
    """Returns `status_code` as an integer between 400 and 599, or 500 if it is not an integer."""
    try:
        return min(max(operator.index(error.status_code), 400), 599)  # type: ignore[attr-defined]
    except BaseException:
        return 500


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "its message cannot be read, because its `__str__` raised an exception"


def _class_name(error: BaseException) -> str:
    try:
        return f"{type(error).__module__}.{type(error).__qualname__}"
    except BaseException:
        return "an exception whose class has no readable name"


def _traceback(error: BaseException) -> str:
    trace = error.__traceback__
    try:
        shown = _user_frames(trace) or _frames_outside(_WORKER_FOLDER, trace) or trace
        described = traceback.TracebackException(type(error), error, shown)
        _cut(described)
        return "".join(described.format())
    except BaseException:
        return ""


def _cut(described: traceback.TracebackException) -> None:
    """Cuts the messages of an exception, its causes and its parts, because Python takes long to indent long ones."""
    waiting: List[Any] = [described]
    for _ in range(_MAX_CHAIN):
        if not waiting:
            return
        found = waiting.pop()
        text = getattr(found, "_str", None)
        if isinstance(text, str) and len(text) > _MAX_TRACEBACK:
            found._str = f"{text[:_MAX_TRACEBACK // 2]} ..."
        notes = getattr(found, "__notes__", None)
        if isinstance(notes, (list, tuple)):
            found.__notes__ = [str(note)[: _MAX_TRACEBACK // 2] for note in notes[:_MAX_CHAIN]]
        waiting += filter(None, (found.__cause__, found.__context__, *(getattr(found, "exceptions", None) or ())))


def _user_frames(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Returns a traceback from its first frame of user code on, without the frames that called it; `None` if it has none."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith((_SDK_PREFIX, "<frozen importlib")) or file == _IMPORT_MACHINERY):
            return trace
        trace = trace.tb_next
    return None


def _frames_outside(folder: str, trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Returns the frames after the last one whose file is in a folder."""
    found, current = trace, trace
    while current is not None:
        if os.path.dirname(current.tb_frame.f_code.co_filename) == folder:
            found = current.tb_next
        current = current.tb_next
    return found


__all__ = ["describe", "is_http_exception"]
