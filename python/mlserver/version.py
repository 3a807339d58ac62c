"""The version of the server."""

__version__ = "1.8.0"
