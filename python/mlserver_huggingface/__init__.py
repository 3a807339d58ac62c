"""Serves pipelines of Hugging Face transformers."""

from .runtime import HuggingFaceRuntime
from .settings import HuggingFaceSettings

__all__ = ["HuggingFaceRuntime", "HuggingFaceSettings"]
