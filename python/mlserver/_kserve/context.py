"""The predictor of the models that are created from now on, or in this context."""

from contextvars import ContextVar
from typing import Optional

from .predictor_config import PredictorConfig

__all__ = ["get_predictor_config", "set_predictor_config"]

_predictor_config_var: "ContextVar[Optional[PredictorConfig]]" = ContextVar("predictor_config", default=None)


def get_predictor_config() -> Optional[PredictorConfig]:
    """Returns the predictor that was set last, if any."""
    return _predictor_config_var.get()


def set_predictor_config(config: PredictorConfig) -> None:
    """Sets the predictor."""
    _predictor_config_var.set(config)
