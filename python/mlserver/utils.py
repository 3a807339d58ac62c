"""Helpers for runtimes."""

import asyncio
import os
import urllib.parse
import uuid
from typing import Any, Callable, Coroutine, Dict, List, Optional

from ._legacy import missing_names
from .errors import InvalidModelURI
from .logging import logger
from .settings import ModelSettings
from .types import InferenceRequest, InferenceResponse, Parameters

__all__ = [
    "AsyncManager",
    "extract_headers",
    "generate_uuid",
    "get_model_uri",
    "get_wrapped_method",
    "insert_headers",
    "install_uvloop_event_loop",
    "schedule_with_callback",
    "to_absolute_path",
]

__getattr__ = missing_names(__name__)


async def get_model_uri(settings: ModelSettings, wellknown_filenames: Optional[List[str]] = None) -> str:
    """Returns the path of a model's artifact: a file, or a folder that has none of the well-known files.

    A URI with a scheme other than `file` is returned as it is. Raises `InvalidModelURI` if the path does not exist.
    """
    uri = settings.parameters.uri if settings.parameters is not None else None
    if not uri:
        raise InvalidModelURI(settings.name)
    parsed = urllib.parse.urlparse(uri)
    if parsed.scheme not in ("", "file"):
        return uri
    full_path = to_absolute_path(settings, parsed.path if parsed.scheme else uri)
    if os.path.isfile(full_path):
        return full_path
    if os.path.isdir(full_path):
        for name in wellknown_filenames or ():
            candidate = os.path.join(full_path, name)
            if os.path.isfile(candidate):
                return candidate
        return full_path
    raise InvalidModelURI(settings.name, full_path)


def to_absolute_path(model_settings: ModelSettings, uri: str) -> str:
    """Resolves a path relative to the folder of the settings. Returns it as it is if the settings are not from a file."""
    if model_settings._source is None:
        return uri
    return os.path.normpath(os.path.join(os.path.dirname(model_settings._source), uri))


def generate_uuid() -> str:
    """Returns a random UUID."""
    return str(uuid.uuid4())


def insert_headers(inference_request: InferenceRequest, headers: Dict[str, str]) -> InferenceRequest:
    """Sets the `headers` parameter of a request to the headers of its call. They override those in the request."""
    if inference_request.parameters is None:
        inference_request.parameters = Parameters()
    if inference_request.parameters.headers:
        logger.warning(
            "The headers of the call override the request's `headers` parameter, which has %d entries.",
            len(inference_request.parameters.headers),
        )
    inference_request.parameters.headers = headers
    return inference_request


def extract_headers(inference_response: InferenceResponse) -> Optional[Dict[str, str]]:
    """Removes the headers from a response, and returns them."""
    if inference_response.parameters is None:
        return None
    headers = inference_response.parameters.headers
    if headers is not None:
        inference_response.parameters.headers = None
    return headers


def get_wrapped_method(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function below all decorators."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    return f


def schedule_with_callback(
    coro: "Coroutine[Any, Any, Any]", cb: Callable[["asyncio.Task[Any]"], Any]
) -> "asyncio.Task[Any]":
    """Starts a coroutine as a task that calls `cb` when it has finished."""
    task = asyncio.ensure_future(coro)
    task.add_done_callback(cb)
    return task


def install_uvloop_event_loop() -> None:
    """Makes uvloop the event loop of this process if it is installed."""
    try:
        import uvloop
    except ImportError:
        return
    uvloop.install()


class AsyncManager:
    """Runs coroutines from synchronous code."""

    def run(self, coro: "Coroutine[Any, Any, Any]") -> Any:
        """Runs a coroutine until it has finished, and returns its result."""
        return asyncio.run(coro)
