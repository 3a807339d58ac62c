"""Serves models of Spark MLlib."""

from .mllib import MLlibModel

__all__ = ["MLlibModel"]
