"""The errors of metrics."""

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

    def __init__(self, metric_name: str) -> None:
        super().__init__(f"No metric found with name '{metric_name}'", 500)
