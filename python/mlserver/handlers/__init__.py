"""Custom routes of models, which `custom_handler` declares."""

from .custom import CustomHandler, custom_handler, get_custom_handlers

__all__ = ["CustomHandler", "custom_handler", "get_custom_handlers"]
