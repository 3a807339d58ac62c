"""The command `mlserver`, for code that starts it from Python."""

from .main import main

__all__ = ["main"]
