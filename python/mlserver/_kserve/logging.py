"""KServe's loggers."""

import io
import logging
import logging.config
from typing import Any, Dict, Optional, Union

from .._text import read_file, read_json_file

__all__ = ["KSERVE_LOG_CONFIG", "configure_logging", "logger", "trace_logger"]

KSERVE_LOGGER_NAME = "kserve"
KSERVE_TRACE_LOGGER_NAME = "kserve.trace"
KSERVE_LOGLEVEL = "INFO"
KSERVE_LOGGER_FORMAT = (
    "%(asctime)s.%(msecs)03d %(process)s %(name)s %(levelname)s [%(filename)s:%(funcName)s():%(lineno)s] %(message)s"
)
KSERVE_TRACE_LOGGER_FORMAT = "%(asctime)s.%(msecs)03d %(process)s %(name)s %(message)s"
KSERVE_LOGGER_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"

#: For `logging.config.dictConfig`. The server logs requests itself, without the loggers of uvicorn.
KSERVE_LOG_CONFIG: Dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "kserve": {"()": "logging.Formatter", "fmt": KSERVE_LOGGER_FORMAT, "datefmt": KSERVE_LOGGER_DATE_FORMAT},
        "kserve_trace": {
            "()": "logging.Formatter",
            "fmt": KSERVE_TRACE_LOGGER_FORMAT,
            "datefmt": KSERVE_LOGGER_DATE_FORMAT,
        },
    },
    "handlers": {
        "kserve": {"class": "logging.StreamHandler", "formatter": "kserve", "stream": "ext://sys.stderr"},
        "kserve_trace": {"class": "logging.StreamHandler", "formatter": "kserve_trace", "stream": "ext://sys.stderr"},
    },
    "loggers": {
        "kserve": {"handlers": ["kserve"], "level": KSERVE_LOGLEVEL, "propagate": False},
        "kserve.trace": {"handlers": ["kserve_trace"], "level": KSERVE_LOGLEVEL, "propagate": False},
    },
}

logger = logging.getLogger(KSERVE_LOGGER_NAME)
trace_logger = logging.getLogger(KSERVE_TRACE_LOGGER_NAME)


def configure_logging(log_config: Optional[Union[Dict[str, Any], str]] = None) -> None:
    """Configures the loggers with a dictionary, or the path of a JSON, YAML or INI file.

    Without either, a logger that has handlers stays as it is.
    """
    if log_config is None and logger.hasHandlers():
        return  # the user has configured them
    if log_config is None:
        logging.config.dictConfig(KSERVE_LOG_CONFIG)
    elif isinstance(log_config, dict):
        logging.config.dictConfig(log_config)
    elif log_config.endswith(".json"):
        logging.config.dictConfig(read_json_file(log_config))
    elif log_config.endswith((".yaml", ".yml")):
        try:
            import yaml  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError(
                f"cannot read the log configuration {log_config!r}: PyYAML is not installed"
                " (install it, or write the configuration as JSON)"
            ) from error
        logging.config.dictConfig(yaml.safe_load(read_file(log_config)))
    else:
        logging.config.fileConfig(io.StringIO(read_file(log_config)), disable_existing_loggers=False)
