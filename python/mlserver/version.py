"""The version of the server."""

__version__ = "2.0.0"
