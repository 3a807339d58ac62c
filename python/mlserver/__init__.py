"""What a model's code imports from the server."""

from .cancellation import cancelled
from .metrics import log, register
from .model import MLModel
from .settings import ModelSettings, Settings
from .version import __version__

__all__ = ["MLModel", "ModelSettings", "Settings", "__version__", "cancelled", "log", "register"]
