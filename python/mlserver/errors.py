"""The exceptions of the server.

    MLServerError              has the status of the answer, 400 by default
    ├── InvalidModelURI        422
    ├── ModelNotFound          404
    ├── ModelNotReady          400
    ├── InferenceError         400
    ├── ModelParametersMissing 400
    ├── ScoringError           500
    ├── codecs.errors.CodecError             400
    ├── metrics.errors.InvalidModelContext   500
    └── metrics.errors.MetricNotFound        500

A model raises them, or subclasses, to set the status and the message of the answer. Any other exception is a 500.
"""

from typing import Optional

__all__ = [
    "InferenceError",
    "InvalidModelURI",
    "MLServerError",
    "ModelNotFound",
    "ModelNotReady",
    "ModelParametersMissing",
    "ScoringError",
]


class MLServerError(Exception):
    """An error whose message and HTTP status are sent to the client."""

    def __init__(self, msg: str, status_code: int = 400) -> None:
        super().__init__(msg)
        #: A plain integer, also if it is given as an `http.HTTPStatus`.
        self.status_code = int(status_code) if isinstance(status_code, int) else status_code


class InvalidModelURI(MLServerError):
    """A model's artifact does not exist."""

    def __init__(self, name: str, model_uri: Optional[str] = None) -> None:
        # What follows the path may be a signature.
        where = f" ({str(model_uri).partition('?')[0]})" if model_uri else ""
        super().__init__(f"Invalid URI specified for model {name}{where}", 422)


class ModelNotFound(MLServerError):
    """The model, or this version of it, does not exist."""

    def __init__(self, name: str, version: Optional[str] = None) -> None:
        super().__init__(f"Model {_versioned(name, version)} not found", 404)


class ModelNotReady(MLServerError):
    """The model cannot answer yet."""

    def __init__(self, name: str, version: Optional[str] = None) -> None:
        super().__init__(f"Model {_versioned(name, version)} is not ready yet.", 400)


class InferenceError(MLServerError):
    """The model cannot answer this request."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg, 400)


class ModelParametersMissing(MLServerError):
    """The model's settings lack required parameters."""

    def __init__(self, model_name: str) -> None:
        super().__init__(f"Parameters missing for model {model_name}", 400)


class ScoringError(MLServerError):
    """The process that evaluates a model for `mlserver.load` cannot start, cannot load the model, or has ended."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg, 500)


def _versioned(name: str, version: Optional[str]) -> str:
    return f"{name} with version {version}" if version is not None else name
