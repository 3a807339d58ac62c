"""REST, which the server speaks; here is what custom handlers return."""

from .responses import Response

__all__ = ["Response"]
