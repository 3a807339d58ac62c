"""Serves pipelines of Hugging Face's transformers."""

from .runtime import HuggingFaceRuntime
from .settings import HuggingFaceSettings

__all__ = ["HuggingFaceRuntime", "HuggingFaceSettings"]
