"""The errors of batching."""

from typing import Optional

from .._legacy import missing_names
from ..errors import MLServerError

__all__ = ["InvalidBatchingMethod"]

__getattr__ = missing_names(__name__)


class InvalidBatchingMethod(MLServerError):
    """A method cannot be batched."""

    def __init__(self, method_name: str, reason: Optional[str] = None) -> None:
        message = f"Method {method_name} can't be used for adaptive batching"
        super().__init__(f"{message}: {reason}." if reason else f"{message}.", 400)
