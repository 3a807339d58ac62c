"""REST, which the server speaks; here is what custom handlers take and return."""

from .requests import Request
from .responses import Response

__all__ = ["Request", "Response"]
