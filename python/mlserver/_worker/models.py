"""Loads models: imports their class from their own folder, creates an instance, and calls its `load`."""

import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple

from ..context import model_context
from ..errors import MLServerError
from ..model import MLModel
from ..settings import ModelSettings

if TYPE_CHECKING:
    from .handlers import Handler


class LoadedModel:
    """A loaded model."""

    __slots__ = ("name", "version", "instance", "predict_is_async", "handlers", "thread")

    def __init__(self, instance: Any) -> None:
        self.name: str = instance.settings.name
        self.version: Optional[str] = instance.settings.version
        self.instance = instance
        self.predict_is_async = _is_async(instance.predict)
        self.handlers: Dict[str, Handler] = {}
        #: The thread for its plain functions; created for the first call.
        self.thread: Optional[ThreadPoolExecutor] = None


async def load(settings: Dict[str, Any], source: Optional[str]) -> Tuple[LoadedModel, Dict[str, Any]]:
    """Loads a model. Returns it with the head of the `loaded` frame.

    Raises any exception that the model's code raises.
    """
    parsed = ModelSettings.from_source(settings, source)
    folder = None if source is None else os.path.dirname(source)
    with model_context(parsed), _importing_from(folder):
        instance = import_class(parsed)(parsed)
        model = LoadedModel(instance)
        for handler in _custom_handlers(instance):
            model.handlers[handler.name] = handler
        loaded = instance.load()
        if inspect.isawaitable(loaded):
            loaded = await loaded
        instance.ready = bool(loaded)
        metadata = instance.metadata()
        if inspect.isawaitable(metadata):
            metadata = await metadata
    return model, {
        "ready": instance.ready,
        "streams": _streams(instance),
        "plain": not model.predict_is_async,
        "handlers": [
            {"name": handler.name, "path": handler.path, "method": handler.method, "plain": not handler.is_async}
            for handler in model.handlers.values()
        ],
        "metadata": metadata.model_dump(mode="json", exclude_unset=False),
    }


async def unload(model: LoadedModel) -> None:
    """Unloads a model, and stops its thread."""
    with model_context(model.instance.settings):
        try:
            unloaded = model.instance.unload()
            if inspect.isawaitable(unloaded):
                await unloaded
        finally:
            if model.thread is not None:
                model.thread.shutdown(wait=False)


def import_class(settings: ModelSettings) -> Any:
    """Imports the class that the settings name.

    If the module or class does not exist, raises `MLServerError` with the folders that were searched.
    """
    try:
        return settings.implementation
    except ModuleNotFoundError as error:
        searched = ", ".join(path or os.getcwd() for path in sys.path)
        message = (
            f"implementation `{settings.implementation_}` needs the module `{error.name}`, which {sys.executable} "
            f"(Python {sys.version.split()[0]}) does not have; searched: {searched}"
        )
        raise MLServerError(message, 500) from error
    except ImportError as error:
        raise MLServerError(f"cannot import implementation `{settings.implementation_}`: {error}", 500) from error


@contextmanager
def _importing_from(folder: Optional[str]) -> Iterator[None]:
    """Puts a model's folder first on the import path while the model loads, for unpickling, and last afterwards."""
    if folder is None:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        # For functions that import when they run. If several folders have a module of the same name, the first one is used.
        if folder not in sys.path:
            sys.path.append(folder)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _streams(instance: Any) -> bool:
    """Returns whether the model overrides `predict_stream`."""
    return getattr(type(instance), "predict_stream", None) is not MLModel.predict_stream


def _custom_handlers(instance: Any) -> "Iterator[Handler]":
    from ..handlers.custom import get_custom_handlers

    for description, bound in get_custom_handlers(instance):
        from .handlers import Handler  # most models have none

        yield Handler(description.rest_path, description.rest_method, bound)


__all__ = ["LoadedModel", "import_class", "load", "unload"]
