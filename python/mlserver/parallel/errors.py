"""The errors of workers. The server reports them itself; the classes exist for user code that imports them."""

from typing import Any

from ..errors import MLServerError

__all__ = ["EnvironmentNotFound", "WorkerError", "WorkerStop"]


class EnvironmentNotFound(MLServerError):
    """A model's environment does not exist."""

    def __init__(self, model: Any, env_hash: str) -> None:
        super().__init__(f"Environment with hash {env_hash} was not found for model '{model.name}'", 500)


class WorkerError(MLServerError):
    """An exception of user code, as it is reported by a worker."""

    def __init__(self, exc: BaseException) -> None:
        kind = type(exc)
        super().__init__(f"{kind.__module__}.{kind.__qualname__}: {exc}", getattr(exc, "status_code", 500))


class WorkerStop(MLServerError):
    """A worker exited during a call."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"Worker process stopped unexpectedly with exit code {exit_code}.", 500)
