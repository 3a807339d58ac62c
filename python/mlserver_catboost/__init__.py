"""Serves CatBoost's models in Python."""

from .catboost import CatboostModel

__all__ = ["CatboostModel"]
