"""The base class of all payload types."""

from .._model import BaseModel as _BaseModel
from .._validate import ValidationError

__all__ = ["BaseModel", "ValidationError"]


class BaseModel(_BaseModel):
    """A payload type; `model_dump` leaves out what is unset or `None` unless told otherwise."""

    _sparse = True
