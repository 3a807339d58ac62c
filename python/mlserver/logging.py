"""The loggers of the server, and the format of their lines.

Lines have the original's format: `time [logger][model:version] LEVEL - message`, or JSON objects with the same fields. A
worker calls `install_handler`, which sends all records to the server instead of standard output.
"""

import io
import json
import logging
import logging.config
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from ._text import read_file, read_json_file
from .context import model_name_var, model_version_var

if TYPE_CHECKING:
    from .settings import Settings

__all__ = ["LoggerName", "ModelLoggerFormatter", "configure_logger", "get_logger", "install_handler", "logger"]

LoggerName = "mlserver"

logger = logging.getLogger(LoggerName)

_stream_handler: Optional[logging.Handler] = None
_installed_handler: Optional[logging.Handler] = None


class ModelLoggerFormatter(logging.Formatter):
    """Formats lines with the model whose code logged them."""

    _FORMAT = "%(asctime)s [%(name)s]%(model)s %(levelname)s - %(message)s"

    def __init__(self, settings: Optional["Settings"] = None) -> None:
        super().__init__(self._FORMAT)
        self.use_structured_logging = settings is not None and settings.use_structured_logging

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line for a record."""
        name, version = model_name_var.get(""), model_version_var.get("")
        record.model = "" if not name else f"[{name}:{version}]" if version else f"[{name}]"
        if not self.use_structured_logging:
            return super().format(record)
        fields = "".join(
            f', "{field}": {json.dumps(value)}' for field, value in (("model_name", name), ("model_version", version)) if value
        )
        # As in the original, for subclasses with a format of their own.
        record.model = fields
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        line = {
            "time": self.formatTime(record),
            "name": record.name,
            "level": record.levelname,
            "message": message,
        }
        if name:
            line["model_name"] = name
        if version:
            line["model_version"] = version
        return json.dumps(line, ensure_ascii=False)


def get_logger() -> logging.Logger:
    """Returns the logger `mlserver`."""
    return logger


def install_handler(handler: Optional[logging.Handler]) -> None:
    """Sends the records of all loggers, `mlserver` and the user's, to `handler` instead of standard output.

    `None` removes the installed handler.
    """
    global _installed_handler
    root = logging.getLogger()
    if _installed_handler is not None:
        root.removeHandler(_installed_handler)
    _installed_handler = handler
    if handler is not None:
        root.addHandler(handler)
        _remove_stream_handler()


def ensure_stream_handler() -> None:
    """Gives the logger a handler on standard output if it has none: models change its format."""
    if not logger.handlers:
        _add_stream_handler(None)


def configure_logger(settings: Optional["Settings"] = None) -> logging.Logger:
    """Sets the level and format of the logger `mlserver`, then applies `logging_settings`, which can override both."""
    if _installed_handler is None:
        _remove_stream_handler()
        _add_stream_handler(settings)
    logger.setLevel(logging.DEBUG if settings is not None and settings.debug else logging.INFO)
    if settings is not None and settings.logging_settings:
        apply_logging_file(settings.logging_settings)
    return logger


def apply_logging_file(logging_settings: Union[str, Dict[str, Any]]) -> None:
    """Configures logging from a dictionary, a JSON file, or a file in the format of `logging.config.fileConfig`."""
    if isinstance(logging_settings, dict):
        logging.config.dictConfig(logging_settings)
    elif isinstance(logging_settings, str) and Path(logging_settings).is_file():
        if logging_settings.endswith("json"):
            logging.config.dictConfig(read_json_file(logging_settings))
        else:
            logging.config.fileConfig(io.StringIO(read_file(logging_settings)), disable_existing_loggers=False)
    else:
        logger.warning("Unable to parse logging_settings.")


def _add_stream_handler(settings: Optional["Settings"]) -> None:
    global _stream_handler
    _stream_handler = logging.StreamHandler(sys.stdout)
    _stream_handler.setFormatter(ModelLoggerFormatter(settings))
    logger.addHandler(_stream_handler)


def _remove_stream_handler() -> None:
    global _stream_handler
    if _stream_handler is not None:
        logger.removeHandler(_stream_handler)
        _stream_handler = None
