"""Loads models: imports their class from their own folder, creates an instance, and calls its `load`."""

import inspect
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Tuple, cast

from .._adapters import ADAPTERS
from .._blocking import completed, is_async
from .._imports import folder_var, importing_from
from .._interpreter import how_to_install, interpreter
from .._openai import handlers_of
from .._worker_model import WorkerHandler, WorkerModel
from ..cancellation import cancellation_var
from ..context import model_context
from ..errors import MLServerError
from ..logging import logger
from ..model import MLModel, metadata_of
from ..settings import ModelSettings
from ..types import MetadataModelResponse
from .threads import CallLoop, ModelThreads

if TYPE_CHECKING:
    from .handlers import Handler


class LoadedModel:
    """A loaded model, and where its code runs."""

    __slots__ = (
        "settings",
        "name",
        "version",
        "folder",
        "instance",
        "predict",
        "predict_is_async",
        "is_inline",
        "handlers",
        "loop",
        "threads",
        "has_warned",
    )

    def __init__(
        self, settings: ModelSettings, instance: Any, loop: CallLoop, threads: ModelThreads, is_inline: bool
    ) -> None:
        self.settings = settings
        self.name: str = settings.name
        self.version: Optional[str] = settings.version
        source = settings._source
        #: The folder of its settings, from which its modules are imported.
        self.folder = None if source is None else os.path.abspath(os.path.dirname(source))
        self.instance = instance
        self.find_predict()
        #: Whether plain functions run on the event loop's thread.
        self.is_inline = is_inline
        self.handlers: Dict[str, WorkerHandler] = {}
        #: The event loop for its coroutines.
        self.loop = loop
        #: The threads for its plain functions.
        self.threads = threads
        #: Whether an output without a regular form has been logged.
        self.has_warned = False

    def find_predict(self) -> None:
        """Reads the function `predict`, which `load` may set."""
        predict = self.instance.predict
        self.predict = completed(predict)
        self.predict_is_async = is_async(predict)

    async def run(self, function: Callable[..., Any], call: Optional[Callable[[], Any]] = None) -> Any:
        """Calls a function of the model on its event loop if it is a coroutine function, otherwise on its threads.

        Calls `call` instead of `function` if there is one.
        """
        call = call or function
        result = call() if is_async(function) else await self.run_plain(call)
        return await result if inspect.isawaitable(result) else result

    async def run_plain(self, function: Callable[[], Any]) -> Any:
        """Calls a function on the threads of the model, or directly in an inline worker."""
        return function() if self.is_inline else await self.threads.run(function)


async def load(
    settings: Dict[str, Any], source: Optional[str], loop: CallLoop, is_inline: bool
) -> Tuple[LoadedModel, Dict[str, Any]]:
    """Loads a model on `loop`, which is running. Returns it with the head of the `loaded` frame.

    Raises any exception that the model's code raises. If `load` has raised it, the model is unloaded first.
    """
    parsed = ModelSettings.from_source(settings, source)
    folder = None if source is None else os.path.dirname(source)
    with model_context(parsed), importing_from(folder):
        instance = _instance(parsed)
        threads = ModelThreads(parsed.name, _thread_count(parsed, is_inline))
        model = LoadedModel(parsed, instance, loop, threads, is_inline)
        # By its type: what a model of a user has under these names is its own.
        adapted = instance if issubclass(type(instance), WorkerModel) else None
        if adapted is not None:
            adapted.bind(model.run_plain)
        try:
            of_methods = handlers_of(instance, model.run_plain) if adapted is None else adapted.handlers()
            for handler in (*_custom_handlers(instance), *of_methods):
                model.handlers[handler.name] = handler
            loaded = await model.run(completed(_function(instance.load, "load")))
            model.find_predict()
            # Many models return nothing, which the original takes as success.
            ready = _set_ready(model, loaded is None or bool(loaded))
            metadata = await _metadata(model)
        except BaseException:
            await _unload_failed(model)
            raise
    steps = [] if adapted is None else adapted.steps()
    asks_servers = adapted is not None and adapted.asks_servers()
    return model, {
        "ready": ready,
        "streams": _streams(instance),
        "plain": not model.predict_is_async,
        "threads": threads.count,
        "own_loop": loop.is_own,
        "handlers": [
            {
                "name": handler.name,
                "path": handler.path,
                "method": handler.method,
                "plain": not handler.is_async,
                **({"v1": handler.v1} if handler.v1 else {}),
                **({"openai": handler.openai} if handler.openai else {}),
            }
            for handler in model.handlers.values()
        ],
        "metadata": metadata,
        **({"steps": steps} if steps else {}),
        **({"asks_servers": True} if asks_servers else {}),
    }


async def unload(model: LoadedModel) -> None:
    """Unloads a model, and stops its threads. Called on the model's event loop."""
    with model_context(model.settings):
        try:
            await model.run(completed(_function(model.instance.unload, "unload")))
        finally:
            model.threads.stop()


def _function(value: Any, name: str) -> Callable[..., Any]:
    """Returns what a model has as one of its documented functions."""
    if not callable(value):
        raise MLServerError(
            f"`{name}` of the model is of type `{type(value).__name__}`, but the server calls it; rename the attribute",
            500,
        )
    return cast("Callable[..., Any]", value)


def _set_ready(model: LoadedModel, ready: bool) -> bool:
    """Sets the attribute `ready`, and returns whether the model is ready."""
    instance = model.instance
    try:
        instance.ready = ready
    except Exception as error:
        logger.warning("Cannot set `ready` of model '%s': %s.", model.name, _shown(error))
    try:
        found = instance.ready
    except Exception:
        return ready
    # A property may compute it.
    return found if isinstance(found, bool) else ready


async def _metadata(model: LoadedModel) -> Dict[str, Any]:
    """Returns the metadata that the model gives, or those of its settings, because they must not decide about the load."""
    try:
        given = model.instance.metadata
        if not callable(given):
            raise TypeError(f"it is of type `{type(given).__name__}`, not a function")
        metadata = await model.run(completed(given))
        if not isinstance(metadata, MetadataModelResponse):
            metadata = MetadataModelResponse.model_validate(metadata)
        return _dumped(metadata)
    except BaseException as error:
        call = cancellation_var.get(None)
        if call is not None and call.raised:
            raise
        logger.warning(
            "The attribute `metadata` of model '%s' does not give its metadata (%s). Those of its settings are used.",
            model.name,
            _shown(error),
        )
    return _dumped(metadata_of(model.settings))


def _dumped(metadata: MetadataModelResponse) -> Dict[str, Any]:
    """Returns metadata as JSON. Raises an exception if they have other types than the protocol has."""
    dumped = metadata.model_dump(mode="json", exclude_unset=False)
    MetadataModelResponse.model_validate(dumped)
    return json.loads(json.dumps(dumped))  # type: ignore[no-any-return]


def _shown(error: BaseException) -> str:
    """Returns an exception of user code in one line."""
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
    except BaseException:
        return type(error).__name__


async def _unload_failed(model: LoadedModel) -> None:
    """Frees what a model had opened before its `load` failed."""
    try:
        await unload(model)
    except BaseException:
        logger.debug("`unload` failed after `load` had failed.", exc_info=True)


#: Messages of exceptions are cut to this many characters in warnings.
_MAX_SHOWN = 1_000


def _thread_count(settings: ModelSettings, is_inline: bool) -> int:
    count = getattr(settings.parameters, "threads", None)
    return count if type(count) is int and count > 0 and not is_inline else 1


#: The packages of modules with another name, for the instructions of errors.
_PACKAGES = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "google": "protobuf",
    "grpc": "grpcio",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def import_class(settings: ModelSettings) -> Any:
    """Imports the class that the settings name.

    If the class or a module that it needs does not exist, raises `MLServerError` with what to do.
    """
    for adapter in ADAPTERS:
        adapter.install()
    name = settings.implementation_
    try:
        return settings.implementation
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name.startswith(f"{missing}."):
            where = folder_var.get() or os.getcwd()
            message = (
                f"cannot import implementation `{name}`: there is no module `{missing}`, neither in `{where}` nor in the "
                f"packages of {interpreter()}; check the name, or put `{missing.replace('.', '/')}.py` there"
            )
        else:
            top = missing.partition(".")[0]
            message = (
                f"cannot import implementation `{name}`: it needs the module `{missing}`, which {interpreter()} does not "
                f"have; {how_to_install(_PACKAGES.get(top, top))}"
            )
        raise MLServerError(message, 500) from error
    except ImportError as error:
        raise MLServerError(f"cannot import implementation `{name}`: {error}", 500) from error


def _instance(settings: ModelSettings) -> Any:
    """Creates an instance of the class that the settings name."""
    cls = import_class(settings)
    for adapter in ADAPTERS:
        if adapter.recognizes(cls):
            return adapter.adapt(settings, cls)
    return cls(settings)


def _streams(instance: Any) -> bool:
    """Returns whether the model overrides `predict_stream`."""
    function = inspect.getattr_static(type(instance), "predict_stream", None)
    if isinstance(function, (classmethod, staticmethod)):
        return True
    return callable(function) and function is not MLModel.predict_stream


def _custom_handlers(instance: Any) -> "Iterator[Handler]":
    from ..handlers.custom import get_custom_handlers

    for description, bound in get_custom_handlers(instance):
        from .handlers import Handler  # most models have none

        yield Handler(description.rest_path, description.rest_method, completed(bound))


__all__ = ["LoadedModel", "import_class", "load", "unload"]
