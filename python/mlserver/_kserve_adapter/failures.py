"""Translates exceptions of models to KServe's statuses and words."""

from typing import NoReturn

from .._worker.failures import is_http_exception
from ..errors import MLServerError

#: The statuses of KServe's exceptions. `NotImplementedError` is one of Python.
_STATUSES = {
    "InferenceError": 500,
    "InvalidInput": 400,
    "ModelNotFound": 404,
    "ModelNotReady": 503,
    "ServerNotLive": 503,
    "ServerNotReady": 503,
    "UnsupportedProtocol": 501,
}
#: Those that KServe answers with INVALID_ARGUMENT over gRPC.
_INVALID_ARGUMENTS = ("InferenceError", "UnsupportedProtocol")


def raise_translated(error: Exception, from_grpc: bool = False) -> NoReturn:
    """Raises the error with KServe's status and words for an exception of a model."""
    found = translated(error, from_grpc)
    if found is error:
        raise error
    raise found from error


def translated(error: Exception, from_grpc: bool = False) -> Exception:
    """Returns the error with KServe's status and words for an exception of a model."""
    if isinstance(error, MLServerError) or is_http_exception(error):
        return error
    # A predictor's answer; only errors of our module have it.
    passed_on = getattr(error, "http_status", None)
    if isinstance(passed_on, int):
        details = getattr(error, "details", None)  # of gRPC
        return MLServerError(str(details()) if callable(details) else text_of(error), passed_on)
    for base in type(error).__mro__:
        status = _STATUSES.get(base.__name__)
        if status is not None and base.__module__ in ("kserve.errors", "mlserver._kserve.errors"):
            return MLServerError(text_of(error), 400 if from_grpc and base.__name__ in _INVALID_ARGUMENTS else status)
    if isinstance(error, NotImplementedError):
        return MLServerError(text_of(error), 501)
    return MLServerError(f"{type(error).__name__} : {text_of(error)}", 500)


def text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        # KServe's InferenceError fails if its status is a number.
        try:
            return str(getattr(error, "reason", ""))
        except Exception:
            return ""
