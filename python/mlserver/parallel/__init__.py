"""The errors of workers. The server itself runs and supervises the workers."""

from .._legacy import missing_names

__getattr__ = missing_names(__name__)
