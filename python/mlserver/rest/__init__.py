"""The requests and responses of custom handlers."""

from .._legacy import missing_names
from .requests import Request
from .responses import Response

__all__ = ["Request", "Response"]

__getattr__ = missing_names(__name__)
