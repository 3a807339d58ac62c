"""Serves XGBoost's models in Python: those that the server does not evaluate itself."""

from .xgboost import XGBoostModel

__all__ = ["XGBoostModel"]
