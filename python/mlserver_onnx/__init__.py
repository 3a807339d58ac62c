"""Serves ONNX models with onnxruntime."""

from .onnx import OnnxModel

__all__ = ["OnnxModel"]
