"""Prints and log records on their way to the server: one line each, on the pipes that standard output and error are.

They do not travel in frames, so that they arrive when the loop is busy, from any thread, and also when the process dies next.
"""

import io
import json
import logging
import os
import sys
import threading
from contextvars import ContextVar
from typing import Any, Dict, Iterable, List, Optional

from ..context import model_name_var, model_version_var
from ..logging import install_handler
from ..logging import logger as mlserver_logger

#: The id of the request that the running code answers.
request_id_var: "ContextVar[Optional[str]]" = ContextVar("request_id", default=None)

_MARK = b"\x1e"
_MAX_TEXT = 60 << 10


def install(debug: bool) -> None:
    """Sends whatever is printed or logged from here on to the server."""
    out, err = _Printed(1), _Printed(2)
    sys.stdout, sys.stderr = out, err
    install_handler(_Records())
    mlserver_logger.setLevel(logging.DEBUG if debug else logging.INFO)


def _write(descriptor: int, lock: "threading.Lock", record: Dict[str, Any]) -> None:
    model = model_name_var.get(None)
    if model is not None:
        record["model"] = model
        version = model_version_var.get("")
        if version:
            record["version"] = version
    request = request_id_var.get()
    if request:
        record["request"] = request
    line = _MARK + json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with lock:
        while line:
            try:
                line = line[os.write(descriptor, line) :]
            except OSError:  # the server has gone, and this process goes next
                return


class _Printed(io.TextIOBase):
    """A text stream whose lines become records."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._begun = threading.local()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    @property
    def buffer(self) -> Any:
        """The pipe itself, for what writes bytes."""
        return (sys.__stdout__ if self._descriptor == 1 else sys.__stderr__).buffer  # type: ignore[union-attr]

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        whole = getattr(self._begun, "text", "") + text
        lines = whole.split("\n")
        self._begun.text = lines.pop()
        if len(self._begun.text) > _MAX_TEXT:
            lines.append(self._begun.text)
            self._begun.text = ""
        for line in lines:
            # Of a line that overwrites itself, a progress bar's, only the last state is worth keeping.
            line = line.rstrip("\r").rpartition("\r")[2]
            if line:
                _write(self._descriptor, self._lock, {"message": line[:_MAX_TEXT]})
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Does nothing: whole lines have left already, and the others are not lines yet."""

    def finish(self) -> None:
        """Sends a last line that never ended."""
        if getattr(self._begun, "text", ""):
            self.write("\n")


class _Records(logging.Handler):
    """Sends log records on."""

    def __init__(self) -> None:
        super().__init__()
        self._own = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if record.exc_info and not record.exc_text:
                record.exc_text = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            parts: List[str] = [message, *filter(None, (record.exc_text, record.stack_info))]
            text = "\n".join(parts)
            fields = {"message": text[:_MAX_TEXT], "level": record.levelname, "logger": record.name}
            _write(2, self._own, fields)
        except Exception:
            self.handleError(record)


def finish() -> None:
    """Sends what waits for the end of its line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Printed):
            stream.finish()
