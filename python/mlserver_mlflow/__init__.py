"""Serves MLflow models, over the V2 protocol and MLflow's own."""

from .codecs import TensorDictCodec
from .runtime import MLflowRuntime

__all__ = ["MLflowRuntime", "TensorDictCodec"]
