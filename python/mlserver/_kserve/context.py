"""The predictor that transformers and explainers call."""

from contextvars import ContextVar
from typing import Optional

from .predictor_config import PredictorConfig

__all__ = ["get_predictor_config", "set_predictor_config"]

_predictor_config_var: "ContextVar[Optional[PredictorConfig]]" = ContextVar("predictor_config", default=None)

#: What was set last, for threads whose context has nothing else.
_process_config: Optional[PredictorConfig] = None


def get_predictor_config() -> Optional[PredictorConfig]:
    """Returns the predictor of this context, or the one that was set last in this process, if any."""
    config = _predictor_config_var.get()
    return _process_config if config is None else config


def set_predictor_config(config: PredictorConfig) -> None:
    """Sets the predictor of this context, and of others that have none."""
    global _process_config
    _process_config = config
    _predictor_config_var.set(config)
