"""Metrics of user code: `register` creates histograms, `log` observes values for the current model."""

from .._legacy import missing_names
from .context import log, register
from .registry import REGISTRY, Observation, set_sink

__all__ = ["REGISTRY", "Observation", "log", "register", "set_sink"]

__getattr__ = missing_names(__name__)
