"""Sends prints and log records to the server: one line each, on the pipes of standard output and standard error.

They are not sent in frames, so that they arrive even if the event loop is busy or the process dies, and from any thread.
"""

import io
import json
import logging
import os
import sys
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union
from weakref import WeakSet

from ..context import model_name_var, model_version_var
from ..logging import apply_logging_file, ensure_stream_handler, install_handler
from ..logging import logger as mlserver_logger
from .process_state import after_fork

#: The id of the request that the running code answers.
request_id_var: "ContextVar[Optional[str]]" = ContextVar("request_id", default=None)

_RECORD_MARK = b"\x1e"
#: The longest text of one record, in characters, and the longest line, in bytes. The server cuts lines at 64 KiB.
_MAX_TEXT = 60 << 10
_MAX_LINE = 63 << 10
#: Texts of several lines are split into records of at most this many characters, which always fit in a line.
_MAX_LINES_TEXT = 15 << 10
#: Ids of requests and names of loggers are cut to this many characters.
_MAX_NAME = 256

#: One lock for each descriptor. Reentrant, because the garbage collector can run destructors that print, while it is held.
_locks = {1: threading.RLock(), 2: threading.RLock()}

#: The text that threads have written without a newline.
_unfinished: "WeakSet[_Unfinished]" = WeakSet()


def install(debug: bool, configuration: Union[str, Dict[str, Any], None] = None) -> None:
    """Sends all further prints to the server, and the log records that `configuration` allows."""
    sys.stdout, sys.stderr = _OutputStream(1), _OutputStream(2)
    after_fork(_forget_threads)
    records = _RecordHandler()
    install_handler(records)
    mlserver_logger.setLevel(logging.DEBUG if debug else logging.INFO)
    if configuration is not None:
        try:
            apply_logging_file(configuration)
        except Exception:
            mlserver_logger.exception("Cannot apply `logging_settings`; models use the default configuration.")
    _omit_copies(records)
    ensure_stream_handler()
    _keep_records(records)


def finish() -> None:
    """Sends the unfinished lines of all threads."""
    for unfinished in list(_unfinished):
        unfinished.send()


def _forget_threads() -> None:
    """In a forked child, replaces the locks, which other threads may hold, and drops lines that the parent will send."""
    for descriptor in _locks:
        _locks[descriptor] = threading.RLock()
    for unfinished in list(_unfinished):
        unfinished.text, unfinished.process = "", os.getpid()


def _omit_copies(records: logging.Handler) -> None:
    """Makes handlers on standard output and standard error omit what `records` sends as well.

    Many libraries have such a handler. Those that `logging_settings` has configured are meant to write all records.
    """
    original = logging.StreamHandler.emit
    configured: WeakSet[logging.Handler] = WeakSet()
    for reference in list(getattr(logging, "_handlerList", ())):
        handler = reference()
        if handler is not None:
            configured.add(handler)

    def emit(handler: Any, record: logging.LogRecord) -> None:
        is_copy = isinstance(handler.stream, _OutputStream) and handler not in configured
        if not (is_copy and _reaches(record.name, records)):
            original(handler, record)

    logging.StreamHandler.emit = emit  # type: ignore[assignment, method-assign]


def _keep_records(records: logging.Handler) -> None:
    """Makes `logging.basicConfig` work, which does nothing if there are handlers, and must not remove `records`."""
    original = logging.basicConfig

    def configure(**options: Any) -> None:
        is_there = records in logging.root.handlers
        logging.root.removeHandler(records)
        try:
            original(**options)
        finally:
            if is_there:
                logging.root.addHandler(records)

    logging.basicConfig = configure


def _reaches(name: str, handler: logging.Handler) -> bool:
    """Returns whether the records of a logger are passed to a handler."""
    logger: Any = logging.root if name == "root" else logging.root.manager.loggerDict.get(name)
    while isinstance(logger, logging.Logger):
        if handler in logger.handlers:
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _context() -> Dict[str, str]:
    """Returns the fields of a record that describe the running code."""
    fields = {}
    model = model_name_var.get(None)
    if model is not None:
        fields["model"] = model
        version = model_version_var.get("")
        if version:
            fields["version"] = version
    request = request_id_var.get()
    if request:
        fields["request"] = request[:_MAX_NAME]
    return fields


def _write(descriptor: int, record: Dict[str, Any]) -> None:
    line = _encode(record)
    while len(line) > _MAX_LINE:
        message = record["message"]
        # Non-ASCII and escaped characters have several bytes.
        record["message"] = message[: len(message) * _MAX_LINE // len(line) - _MAX_NAME]
        line = _encode(record)
    with _locks[descriptor]:
        while line:
            try:
                line = line[os.write(descriptor, line) :]
            except OSError:  # the server has exited, and so will this process
                return


def _encode(record: Dict[str, Any]) -> bytes:
    return _RECORD_MARK + json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class _Unfinished:
    """The text that one thread has written to one stream without a final newline. Sent at the latest when the thread ends."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.text = ""
        #: The fields of the record; the context is gone when the thread ends.
        self.context: Dict[str, str] = {}
        self.process = os.getpid()
        _unfinished.add(self)

    def __del__(self) -> None:
        # Python deletes the threads of the parent in a forked child before the locks are replaced.
        with suppress(Exception):
            if self.process == os.getpid():
                self.send()

    def send(self) -> None:
        """Sends the text in one record."""
        text, self.text = self.text, ""
        lines = [_last_state(line) for line in text.split("\n")]
        text = "\n".join(lines).strip("\n")
        if not text.strip():
            return
        for part in _parts(text):
            _write(self.descriptor, {"message": part, **self.context})


def _last_state(line: str) -> str:
    """Returns the last state of a line that overwrites itself, such as a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]


def _parts(text: str) -> Iterator[str]:
    """Splits a text that is too long for one record between its lines. A single line that is too long is cut."""
    start = 0
    while len(text) - start > _MAX_LINES_TEXT:
        end = text.rfind("\n", start, start + _MAX_LINES_TEXT)
        if end <= start:
            end = text.find("\n", start + _MAX_LINES_TEXT)
            end = len(text) if end < 0 else end
        yield text[start : min(end, start + _MAX_TEXT)]
        start = end + 1
    if start < len(text):
        yield text[start:]


class _OutputStream(io.TextIOBase):
    """A text stream that is sent in records: one for each write that ends a line."""

    mode = "w"
    line_buffering = True
    write_through = False

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._threads = threading.local()

    @property
    def name(self) -> str:
        return "<stdout>" if self._descriptor == 1 else "<stderr>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    @property
    def buffer(self) -> Any:
        """The pipe itself, for code that writes bytes. Such code may close it."""
        return open(self._descriptor, "wb", closefd=False)

    def detach(self) -> Any:
        """Returns the pipe itself, for code that wraps it again."""
        return self.buffer

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def reconfigure(self, **_options: Any) -> None:
        """Does nothing: the encoding and the buffering of records are fixed."""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        unfinished = self._get()
        unfinished.text += text
        unfinished.context = _context()
        # `print` writes its text and the final newline separately. So lines within a text are sent with it, not before it.
        if unfinished.text.endswith("\n") or len(unfinished.text) > _MAX_TEXT:
            unfinished.send()
        elif "\r" in text:
            self._drop_old_states(unfinished)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Sends an incomplete line, unless it overwrites itself: of a progress bar, only the last state is sent."""
        unfinished = self._get()
        if "\r" not in unfinished.text.rpartition("\n")[2]:
            unfinished.send()

    def _get(self) -> _Unfinished:
        try:
            return self._threads.unfinished  # type: ignore[no-any-return]
        except AttributeError:
            unfinished = self._threads.unfinished = _Unfinished(self._descriptor)
            return unfinished

    @staticmethod
    def _drop_old_states(unfinished: _Unfinished) -> None:
        lines, newline, line = unfinished.text.rpartition("\n")
        unfinished.text = f"{lines}{newline}\r{_last_state(line)}"


class _RecordHandler(logging.Handler):
    """Sends log records to the server."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if record.exc_info and not record.exc_text:
                record.exc_text = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            parts: List[str] = [message, *filter(None, (record.exc_text, record.stack_info))]
            text = "\n".join(parts)
            fields = {"message": text[:_MAX_TEXT], "level": record.levelname, "logger": record.name[:_MAX_NAME]}
            _write(2, {**fields, **_context()})
        except Exception:
            self.handleError(record)
