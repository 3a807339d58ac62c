"""What a model's code imports from the server."""

from .metrics import log, register
from .version import __version__

__all__ = ["__version__", "log", "register"]
