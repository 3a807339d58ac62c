"""The predictor that transformers and explainers call."""

from contextvars import ContextVar
from typing import Optional

from .predictor_config import PredictorConfig

__all__ = ["get_predictor_config", "set_predictor_config"]

_predictor_config_var: "ContextVar[Optional[PredictorConfig]]" = ContextVar("predictor_config", default=None)


def get_predictor_config() -> Optional[PredictorConfig]:
    """Returns the predictor of this context, if any."""
    return _predictor_config_var.get()


def set_predictor_config(config: PredictorConfig) -> None:
    """Sets the predictor of this context."""
    _predictor_config_var.set(config)
