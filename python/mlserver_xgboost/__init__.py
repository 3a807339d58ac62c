"""Serves XGBoost models that the server does not evaluate natively."""

from .xgboost import XGBoostModel

__all__ = ["XGBoostModel"]
