"""Serves models of Spark's MLlib."""

from .mllib import MLlibModel

__all__ = ["MLlibModel"]
