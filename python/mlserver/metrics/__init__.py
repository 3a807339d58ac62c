"""Metrics of user code: `register` creates histograms, `log` observes values for the current model."""

from .context import log, register
from .registry import REGISTRY, Observation, set_sink

__all__ = ["REGISTRY", "Observation", "log", "register", "set_sink"]
