"""KServe's exceptions."""

from typing import Any, List, Optional

from .logging import logger

__all__ = [
    "InferenceError",
    "InvalidInput",
    "ModelMissingError",
    "ModelNotFound",
    "ModelNotReady",
    "NoModelReady",
    "ServerNotLive",
    "ServerNotReady",
    "UnsupportedProtocol",
    "WorkersShouldBeLessThanMaxWorkersError",
    "logger",
]


class InferenceError(RuntimeError):
    """A prediction failed."""

    def __init__(self, reason: Any, status: Any = None, debug_details: Any = None) -> None:
        self.reason = reason
        self.status = status
        self.debug_details = debug_details

    def __str__(self) -> str:
        return str(self.reason) if self.status is None else f"[{self.status}] {self.reason}"


class InvalidInput(ValueError):
    """The request is wrong."""

    def __init__(self, reason: Any) -> None:
        self.reason = reason

    def __str__(self) -> str:
        return str(self.reason)


class ModelMissingError(Exception):
    """A model's files do not exist."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)


class ModelNotFound(Exception):
    """No model has the name."""

    def __init__(self, model_name: Optional[str] = None) -> None:
        self.reason = f"Model with name {model_name} does not exist."

    def __str__(self) -> str:
        return self.reason


class ModelNotReady(RuntimeError):
    """The model is not loaded."""

    def __init__(self, model_name: str, detail: Optional[str] = None) -> None:
        self.model_name = model_name
        self.error_msg = _with_detail(f"Model with name {model_name} is not ready.", detail)

    def __str__(self) -> str:
        return self.error_msg


class NoModelReady(RuntimeError):
    """None of the models of a server is loaded."""

    def __init__(self, models: List[Any], detail: Optional[str] = None) -> None:
        self.models = models
        self.detail = detail
        names = ",".join(model.name for model in models)
        words = f"Model with name {names} is" if len(models) == 1 else f"Models with names {names} are"
        self.error_msg = _with_detail(f"{words} not ready.", detail)

    def __str__(self) -> str:
        return self.error_msg


class ServerNotLive(RuntimeError):
    """The server is stopping."""

    def __init__(self, detail: Optional[str] = None) -> None:
        self.error_msg = _with_detail("Server is not live.", detail)

    def __str__(self) -> str:
        return self.error_msg


class ServerNotReady(RuntimeError):
    """The server cannot take requests yet."""

    def __init__(self, detail: Optional[str] = None) -> None:
        self.error_msg = _with_detail("Server is not ready.", detail)

    def __str__(self) -> str:
        return self.error_msg


class UnsupportedProtocol(Exception):
    """A protocol other than V1 and V2."""

    def __init__(self, protocol_version: Optional[str] = None) -> None:
        self.reason = f"Unsupported protocol {protocol_version}."

    def __str__(self) -> str:
        return self.reason


class WorkersShouldBeLessThanMaxWorkersError(Exception):
    """More workers than allowed."""

    def __init__(self, max_workers: Optional[int] = None) -> None:
        self.reason = f"Workers cannot be greater than {max_workers}"

    def __str__(self) -> str:
        return self.reason


def _with_detail(message: str, detail: Optional[str]) -> str:
    return f"{message} {detail}" if detail else message
