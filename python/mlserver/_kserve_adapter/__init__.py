"""Runs classes that extend KServe's `Model`, of the real package or of ours, as models of the worker."""

from .model import KServeModel, adapt, wrap
from .v1 import V1Handler

__all__ = ["KServeModel", "V1Handler", "adapt", "wrap"]
