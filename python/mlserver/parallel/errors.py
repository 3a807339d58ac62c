"""What can go wrong with workers. The server tells of them itself; user code may name these classes."""

from typing import Any

from ..errors import MLServerError

__all__ = ["EnvironmentNotFound", "WorkerError", "WorkerStop"]


class EnvironmentNotFound(MLServerError):
    """A model's environment is not there."""

    def __init__(self, model: Any, env_hash: str) -> None:
        super().__init__(f"Environment with hash {env_hash} was not found for model '{model.name}'", 500)


class WorkerError(MLServerError):
    """An exception of user code, as seen from outside the worker."""

    def __init__(self, exc: BaseException) -> None:
        kind = type(exc)
        super().__init__(f"{kind.__module__}.{kind.__qualname__}: {exc}", getattr(exc, "status_code", 500))


class WorkerStop(MLServerError):
    """A worker ended with a call inside it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"Worker process stopped unexpectedly with exit code {exit_code}.", 500)
