"""The errors of batching. The server itself does the batching."""

from .._legacy import missing_names

__getattr__ = missing_names(__name__)
