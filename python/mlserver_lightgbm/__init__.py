"""Serves LightGBM models that the server does not evaluate natively."""

from .lightgbm import LightGBMModel

__all__ = ["LightGBMModel"]
