"""Helpers that runtimes use."""

import asyncio
import os
import urllib.parse
import uuid
from typing import Any, Callable, Coroutine, Dict, List, Optional

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


async def get_model_uri(settings: ModelSettings, wellknown_filenames: Optional[List[str]] = None) -> str:
    """Returns where a model's artifact is: a file, or a folder that has none of the well-known files.

    A URI with a scheme other than `file` is returned as it is. Raises `InvalidModelURI` when there is nothing.
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
    """Returns a path that is relative to the folder of the settings as an absolute one; without such a folder, as it is."""
    if model_settings._source is None:
        return uri
    return os.path.normpath(os.path.join(os.path.dirname(model_settings._source), uri))


def generate_uuid() -> str:
    """Returns a random UUID."""
    return str(uuid.uuid4())


def insert_headers(inference_request: InferenceRequest, headers: Dict[str, str]) -> InferenceRequest:
    """Puts the headers of a call into its request, in place of those that the request may bring itself."""
    if inference_request.parameters is None:
        inference_request.parameters = Parameters()
    if inference_request.parameters.headers:
        logger.warning(
            "The request's own `headers` parameter, with %d entries, is replaced by the headers of the call.",
            len(inference_request.parameters.headers),
        )
    inference_request.parameters.headers = headers
    return inference_request


def extract_headers(inference_response: InferenceResponse) -> Optional[Dict[str, str]]:
    """Takes the headers out of a response, and returns them."""
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
    """Starts a coroutine as a task that calls `cb` when it is done."""
    task = asyncio.ensure_future(coro)
    task.add_done_callback(cb)
    return task


def install_uvloop_event_loop() -> None:
    """Makes uvloop the event loop of this process, when it is installed."""
    try:
        import uvloop
    except ImportError:
        return
    uvloop.install()


class AsyncManager:
    """Runs coroutines from code that is not asynchronous."""

    def run(self, coro: "Coroutine[Any, Any, Any]") -> Any:
        """Runs a coroutine to its end, and returns its result."""
        return asyncio.run(coro)
