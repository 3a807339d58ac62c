"""The errors of metrics."""

from typing import Any

from ..errors import MLServerError

__all__ = ["InvalidModelContext", "MetricNotFound"]


class InvalidModelContext(MLServerError):
    """A metric was logged outside of a model."""

    def __init__(self) -> None:
        super().__init__(
            "Contextual method (e.g. mlserver.log() or mlserver.register()) was called outside of a model context. ",
            500,
        )


class MetricNotFound(MLServerError):
    """No metric has that name."""

    def __init__(self, metric_name: str, collector: Any = None) -> None:
        message = f"No metric found with name '{metric_name}'"
        if collector is not None:
            message = f"The collector with the name '{metric_name}' is a {type(collector)}, not a metric"
        super().__init__(message, 500)
