"""Metrics of user code: `register` makes histograms, `log` observes values for the model that runs."""

from .context import log, register
from .registry import REGISTRY, Observation, set_sink

__all__ = ["REGISTRY", "Observation", "log", "register", "set_sink"]
