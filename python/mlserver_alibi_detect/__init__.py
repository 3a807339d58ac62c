"""Serves the detectors of alibi-detect."""

from .runtime import AlibiDetectRuntime, AlibiDetectSettings

__all__ = ["AlibiDetectRuntime", "AlibiDetectSettings"]
