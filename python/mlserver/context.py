"""The model that the running code belongs to, for logs and metrics."""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from .settings import ModelSettings

__all__ = ["model_context", "model_name_var", "model_version_var"]

model_name_var: "ContextVar[str]" = ContextVar("model_name")
model_version_var: "ContextVar[str]" = ContextVar("model_version")


@contextmanager
def model_context(model_settings: "ModelSettings") -> Iterator[None]:
    """Sets the current model for the code inside the `with` block; the version is `""` if the model has none."""
    name = model_name_var.set(model_settings.name)
    version = model_version_var.set(model_settings.version or "")
    try:
        yield
    finally:
        model_name_var.reset(name)
        model_version_var.reset(version)
