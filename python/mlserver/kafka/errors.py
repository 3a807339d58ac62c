"""The errors of Kafka messages."""

from ..errors import MLServerError

__all__ = ["InvalidMessageHeaders"]


class InvalidMessageHeaders(MLServerError):
    """A message lacks a header."""

    def __init__(self, missing_header: str) -> None:
        super().__init__(f"Invalid Kafka message. Expected '{missing_header}' header not found in message.", 422)
