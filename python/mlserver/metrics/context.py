"""Metrics of the current model."""

from typing import Any

from ..context import model_name_var, model_version_var
from .errors import InvalidModelContext
from .registry import LABELS, REGISTRY

__all__ = ["SELDON_MODEL_NAME_LABEL", "SELDON_MODEL_VERSION_LABEL", "log", "register"]

SELDON_MODEL_NAME_LABEL, SELDON_MODEL_VERSION_LABEL = LABELS

_DEFAULT_DESCRIPTION = "TODO: Default description?"


def register(name: str, description: str) -> Any:
    """Returns the metric of that name, and creates a histogram if needed. An existing one keeps its description.

    If `prometheus_client` is imported, the histogram is an instance of its `Histogram`.
    """
    return REGISTRY.get_or_add(name, description)


def log(**metrics: float) -> None:
    """Observes each value in the histogram of its name, for the current model.

    Raises `InvalidModelContext` if there is no current model.
    """
    try:
        labels = (model_name_var.get(), model_version_var.get())
    except LookupError:
        raise InvalidModelContext() from None
    for name, value in metrics.items():
        register(name, _DEFAULT_DESCRIPTION).labels(*labels).observe(value)
