"""Serves LightGBM's models in Python: those that the server does not evaluate itself."""

from .lightgbm import LightGBMModel

__all__ = ["LightGBMModel"]
