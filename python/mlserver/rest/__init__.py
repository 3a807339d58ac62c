"""The requests and responses of custom handlers."""

from .requests import Request
from .responses import Response

__all__ = ["Request", "Response"]
