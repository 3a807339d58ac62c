"""Serves the explainers of alibi."""

from .runtime import AlibiExplainRuntime
from .settings import AlibiExplainSettings

__all__ = ["AlibiExplainRuntime", "AlibiExplainSettings"]
