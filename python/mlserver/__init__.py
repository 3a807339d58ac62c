"""The SDK of mlserver: base classes, codecs, types and settings for models in Python."""

import importlib
from typing import TYPE_CHECKING, Any

from . import _legacy
from .cancellation import cancelled
from .metrics import log, register
from .model import MLModel
from .settings import ModelSettings, Settings
from .version import __version__

if TYPE_CHECKING:
    from .scoring import load
    from .server import MLServer

__all__ = ["MLModel", "MLServer", "ModelSettings", "Settings", "__version__", "cancelled", "load", "log", "register"]

_SUBMODULES = frozenset(
    (
        "batching",
        "beam",
        "cli",
        "codecs",
        "context",
        "dask",
        "errors",
        "grpc",
        "handlers",
        "kafka",
        "logging",
        "metrics",
        "model",
        "parallel",
        "raw",
        "ray",
        "registry",
        "repository",
        "rest",
        "scoring",
        "server",
        "settings",
        "spark",
        "testing",
        "types",
        "utils",
        "version",
    )
)

_legacy.install()


def __getattr__(name: str) -> Any:
    """Imports a submodule on first access, so that `import mlserver` alone is enough."""
    if name == "MLServer":
        from .server import MLServer  # most models do not start a server

        return MLServer
    if name == "load":
        from .scoring import load

        return load
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
