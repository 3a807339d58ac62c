"""Custom routes of models, which `custom_handler` declares."""

from .._legacy import missing_names
from .custom import CustomHandler, custom_handler, get_custom_handlers

__all__ = ["CustomHandler", "custom_handler", "get_custom_handlers"]

__getattr__ = missing_names(__name__)
