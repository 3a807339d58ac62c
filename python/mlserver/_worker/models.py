"""Loading models: importing their class from their own folder, making an instance, and asking it to load."""

import importlib
import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..context import model_context
from ..errors import MLServerError
from ..model import MLModel
from ..settings import ModelSettings

#: The folders from which models were imported.
_folders: List[str] = []


class Handler:
    """A method of a model that answers a REST route of its own."""

    __slots__ = ("name", "path", "method", "bound", "is_async")

    def __init__(self, path: str, method: str, bound: Callable[..., Any]) -> None:
        self.name = bound.__name__
        self.path = path
        self.method = method
        self.bound = bound
        self.is_async = _is_async(bound)


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
    parsed = ModelSettings.model_validate(settings)
    folder = None if source is None else os.path.dirname(source)
    if source is not None:
        parsed._source = source
    with model_context(parsed), _importing_from(folder):
        model_class = import_class(parsed.implementation_)
        instance = model_class(parsed)
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
        "handlers": [
            {"name": handler.name, "path": handler.path, "method": handler.method} for handler in model.handlers.values()
        ],
        "metadata": metadata.model_dump(mode="json"),
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


def import_class(implementation: str) -> Any:
    """Imports the class that `implementation` names.

    Raises `MLServerError` that says what was searched when there is no such module or class.
    """
    module_name, _, class_name = implementation.rpartition(".")
    if not module_name:
        raise MLServerError(f"implementation `{implementation}` names no module: expected `package.Class`", 500)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        searched = ", ".join(path or os.getcwd() for path in sys.path)
        message = (
            f"implementation `{implementation}` needs the module `{error.name}`, which {sys.executable} "
            f"(Python {sys.version.split()[0]}) does not have; searched: {searched}"
        )
        raise MLServerError(message, 500) from error
    try:
        return getattr(module, class_name)
    except AttributeError as error:
        where = getattr(module, "__file__", None) or module_name
        raise MLServerError(f"implementation `{implementation}`: `{where}` has no `{class_name}`", 500) from error


@contextmanager
def _importing_from(folder: Optional[str]) -> Iterator[None]:
    """Makes a model's folder the first to import from, and its modules new ones.

    Two folders may each have a `models.py`; so modules that came from a model's folder, this one's before or another's, are
    forgotten first. Whoever uses them keeps them.
    """
    if folder is None:
        yield
        return
    if folder not in _folders:
        _folders.append(folder)
    for name, module in list(sys.modules.items()):
        if _is_of_a_model(module):
            del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        # Last, and for good: functions import as they run, too.
        if folder not in sys.path:
            sys.path.append(folder)


def _is_of_a_model(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or "site-packages" in file or module.__name__.partition(".")[0] in ("mlserver", "__main__"):
        return False
    return any(file.startswith(folder + os.sep) for folder in _folders)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _streams(instance: Any) -> bool:
    """Tells whether the model has a `predict_stream` of its own."""
    return getattr(type(instance), "predict_stream", None) is not MLModel.predict_stream


def _custom_handlers(instance: Any) -> Iterator[Handler]:
    from ..handlers.custom import get_custom_handlers

    for description, bound in get_custom_handlers(instance):
        yield Handler(description.rest_path, description.rest_method, bound)


__all__ = ["Handler", "LoadedModel", "import_class", "load", "unload"]
