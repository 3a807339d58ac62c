"""Sends prints and log records to the server: one line each, on the pipes of standard output and standard error.

They are not sent in frames, so that they arrive even if the event loop is busy or the process dies, and from any thread.
"""

import io
import json
import logging
import os
import sys
import threading
from contextvars import ContextVar
from typing import Any, Dict, Iterable, List, Optional, Union

from ..context import model_name_var, model_version_var
from ..logging import apply_logging_file, install_handler
from ..logging import logger as mlserver_logger

#: The id of the request that the running code answers.
request_id_var: "ContextVar[Optional[str]]" = ContextVar("request_id", default=None)

_RECORD_MARK = b"\x1e"
_MAX_TEXT = 60 << 10


def install(debug: bool, configuration: Union[str, Dict[str, Any], None] = None) -> None:
    """Sends all further prints to the server, and the log records that `configuration` allows."""
    out, err = _OutputStream(1), _OutputStream(2)
    sys.stdout, sys.stderr = out, err
    install_handler(_RecordHandler())
    mlserver_logger.setLevel(logging.DEBUG if debug else logging.INFO)
    if configuration is not None:
        try:
            apply_logging_file(configuration)
        except Exception:
            mlserver_logger.exception("Cannot apply `logging_settings`; models use the default configuration.")


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
    line = _RECORD_MARK + json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with lock:
        while line:
            try:
                line = line[os.write(descriptor, line) :]
            except OSError:  # the server has exited, and so will this process
                return


class _OutputStream(io.TextIOBase):
    """A text stream whose lines become records."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._partial = threading.local()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    @property
    def buffer(self) -> Any:
        """The pipe itself, for code that writes bytes."""
        return (sys.__stdout__ if self._descriptor == 1 else sys.__stderr__).buffer  # type: ignore[union-attr]

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        whole = getattr(self._partial, "text", "") + text
        lines = whole.split("\n")
        self._partial.text = lines.pop()
        if len(self._partial.text) > _MAX_TEXT:
            lines.append(self._partial.text)
            self._partial.text = ""
        for line in lines:
            # Keeps only the last state of a line that overwrites itself, such as a progress bar.
            line = line.rstrip("\r").rpartition("\r")[2]
            if line:
                _write(self._descriptor, self._lock, {"message": line[:_MAX_TEXT]})
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Does nothing: complete lines have been sent, and incomplete ones are not sent yet."""

    def finish(self) -> None:
        """Sends a last, incomplete line."""
        if getattr(self._partial, "text", ""):
            self.write("\n")


class _RecordHandler(logging.Handler):
    """Sends log records to the server."""

    def __init__(self) -> None:
        super().__init__()
        self._write_lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if record.exc_info and not record.exc_text:
                record.exc_text = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            parts: List[str] = [message, *filter(None, (record.exc_text, record.stack_info))]
            text = "\n".join(parts)
            fields = {"message": text[:_MAX_TEXT], "level": record.levelname, "logger": record.name}
            _write(2, self._write_lock, fields)
        except Exception:
            self.handleError(record)


def finish() -> None:
    """Sends incomplete lines."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _OutputStream):
            stream.finish()
