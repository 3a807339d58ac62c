"""Loading models: importing their class from their own folder, making an instance, and asking it to load."""

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
    """A model that can be called."""

    __slots__ = ("name", "version", "instance", "predict_is_async", "handlers", "thread")

    def __init__(self, instance: Any) -> None:
        self.name: str = instance.settings.name
        self.version: Optional[str] = instance.settings.version
        self.instance = instance
        self.predict_is_async = _is_async(instance.predict)
        self.handlers: Dict[str, Handler] = {}
        #: Where its plain functions run; made for the first of them.
        self.thread: Optional[ThreadPoolExecutor] = None


async def load(settings: Dict[str, Any], source: Optional[str]) -> Tuple[LoadedModel, Dict[str, Any]]:
    """Loads a model and returns it with what the server wants to know about it.

    Raises whatever its code raises.
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
    """Lets a model clean up."""
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

    Raises `MLServerError` that says what was searched when there is no such module or class.
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
        raise MLServerError(f"implementation `{settings.implementation_}` cannot be imported: {error}", 500) from error


@contextmanager
def _importing_from(folder: Optional[str]) -> Iterator[None]:
    """Makes a model's folder the first to import from while it loads, for what it unpickles, and the last afterwards."""
    if folder is None:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        # For functions that import as they run. Where folders share a module's name, the first of them has it then.
        if folder not in sys.path:
            sys.path.append(folder)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _streams(instance: Any) -> bool:
    """Tells whether the model has a `predict_stream` of its own."""
    return getattr(type(instance), "predict_stream", None) is not MLModel.predict_stream


def _custom_handlers(instance: Any) -> "Iterator[Handler]":
    from ..handlers.custom import get_custom_handlers

    for description, bound in get_custom_handlers(instance):
        from .handlers import Handler  # most models have none

        yield Handler(description.rest_path, description.rest_method, bound)


__all__ = ["LoadedModel", "import_class", "load", "unload"]
