"""The base class of all payload types."""

from typing import Any, ClassVar

from .._model import BaseModel as _BaseModel
from .._validate import ValidationError

__all__ = ["BaseModel", "ValidationError"]


class BaseModel(_BaseModel):
    """The base class of payload types. By default, `model_dump` leaves out fields that are unset or `None`."""

    _sparse = True

    model_config: ClassVar[Any] = {"protected_namespaces": (), "use_enum_values": True}
