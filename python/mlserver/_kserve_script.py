"""Serves the models of a script that ends in `kserve.ModelServer().start([...])`.

The server calls `main` in a process of its own. It runs the script up to that call, and sends the models and the options of the
`ModelServer` to the server. A worker runs it again, and keeps it waiting inside the call, as KServe does: what the script has
opened around the call stays open until its models are unloaded.
"""

import asyncio
import builtins
import contextlib
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from . import _kserve_imports
from ._kserve_adapter import wrap
from ._kserve_adapter.app import handlers_of, settings_of
from ._kserve_adapter.openai import answers_openai
from .errors import MLServerError
from .model import MLModel
from .settings import ModelSettings

#: The longest text of a failure that is sent to the server.
_MAX_DETAIL = 2000
#: How long a script may take to clean up once its models are unloaded.
_CLEANUP_TIMEOUT = 5.0


class ScriptError(MLServerError):
    """A script that cannot be served."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 500)


def _execute(script: str, arguments: List[str]) -> None:
    """Runs a script as `python SCRIPT ARGS...` does."""
    sys.argv = [script, *arguments]
    folder = os.path.dirname(script)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # The last place where processes that `multiprocessing` spawns look for `kserve`.
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_kserve_path")
    if own not in sys.path:
        sys.path.append(own)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=builtins, __cached__=None)
    # Pickles of the script's classes name this module.
    sys.modules["__main__"] = module
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _intercept(started: Callable[[Any, Any], None]) -> None:
    """Replaces `ModelServer.start` of KServe's package, or of ours if that is not there."""
    model_server = _model_server()

    def start(server: Any, models: Any = ()) -> None:
        started(server, models)

    model_server.ModelServer.start = start


def _model_server() -> Any:
    _kserve_imports.install()
    return importlib.import_module("kserve.model_server")


def _models_of(server: Any, models: Any) -> Dict[str, Any]:
    """Returns the models of a call of `start` by name: a list, a dictionary, and those that were registered before."""
    registered: Any = getattr(server, "registered_models", None)
    found: Dict[str, Any] = dict(registered.get_models()) if hasattr(registered, "get_models") else {}
    if isinstance(models, dict):
        found.update(models)
    else:
        for model in [models] if _answers(models) else list(models or ()):
            found[getattr(model, "name", None)] = model  # type: ignore[index]  # checked below
    if not found:
        raise ScriptError("`ModelServer.start` got no models")
    for name, model in found.items():
        if not isinstance(name, str) or not name:
            raise ScriptError(f"`ModelServer.start` got a model without a name: {type(model).__name__}, named {name!r}")
        if not _answers(model):
            raise ScriptError(f"`ModelServer.start` got `{name}`, a {type(model).__name__} without `predict` or `__call__`")
    return found


def _answers(model: Any) -> bool:
    """Returns whether something is a model. Those of OpenAI's API need neither `predict` nor `__call__`."""
    return callable(getattr(model, "predict", None)) or callable(model) or answers_openai(type(model))


def _predictor() -> Any:
    """Returns the predictor that a `ModelServer` has put into the context of the script, if it has a host."""
    try:
        config = importlib.import_module("kserve.context").get_predictor_config()
    except (ImportError, AttributeError, LookupError):
        return None  # an older version
    return config if getattr(config, "predictor_host", None) else None


#: The options of a `ModelServer` that are its attributes.
_OPTIONS = (
    "http_port",
    "grpc_port",
    "workers",
    "max_threads",
    "max_asyncio_workers",
    "enable_grpc",
    "enable_docs_url",
    "enable_latency_logging",
    "access_log_format",
    "event_loop",
    "timeout_keep_alive",
    "grace_period",
    "ssl_certfile",
    "ssl_keyfile",
)
#: The defaults of options that are not arguments.
_DEFAULTS = {"grace_period": 30}


def _options_of(server: Any) -> Dict[str, Any]:
    """Returns the options of a `ModelServer` that are not KServe's defaults."""
    parser = _model_server().parser
    options = {}
    for name in _OPTIONS:
        value = getattr(server, name, None)
        default = _DEFAULTS.get(name, parser.get_default(name))
        if value is not None and value != default and isinstance(value, (bool, int, float, str)):
            options[name] = value
    if getattr(server, "_custom_exception_handler", None) is not None:
        options["exception_handler"] = True
    return {**options, **settings_of(_app())}


def _app() -> Any:
    """Returns the application of FastAPI to which a script may have added routes, if there is one."""
    return vars(_model_server()).get("app")


# ---------------------------------------------------------------------------------------------------- describe


def _describe(script: str, arguments: List[str]) -> NoReturn:
    """Runs a script up to `ModelServer.start`, and sends one line about it over standard input, which is a socket."""
    from ._worker.process import _die_with_parent

    _die_with_parent(os.getppid())
    # Writes the stacks of all threads if the server aborts the process, because it takes too long.
    faulthandler.enable(2)
    process = os.getpid()
    answers = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def end(answer: Dict[str, Any]) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the script may have closed or replaced it
                stream.flush()
        # A child of the script that reaches the end has nothing to tell.
        if os.getpid() == process:
            answers.sendall(json.dumps(answer).encode() + b"\n")
        os._exit(0)

    def started(server: Any, models: Any) -> None:
        try:
            found = _models_of(server, models)
        except ScriptError as error:
            end({"failure": str(error)})
        end({"models": list(found), "options": _options_of(server)})

    sys.path.insert(0, os.path.dirname(script))
    # KServe's package reads the arguments when it is imported.
    sys.argv = [script, *arguments]
    try:
        _intercept(started)
        _execute(script, arguments)
    except SystemExit as error:
        end({"failure": f"it exited with {error.code!r} before it called `ModelServer.start`"})
    except BaseException as error:
        _print_exception(error)
        end({"failure": f"it raised {_shown(error)} before it called `ModelServer.start`"})
    end({"failure": "it ended without calling `kserve.ModelServer().start`"})


def _print_exception(error: BaseException) -> None:
    """Writes an exception with its stack, without the frames of this module."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    with contextlib.suppress(Exception):  # the script may have closed the stream
        traceback.print_exception(type(error), error, frames)


def _shown(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(a message that cannot be shown)"
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return shown if len(shown) <= _MAX_DETAIL else shown[:_MAX_DETAIL] + "…"


# -------------------------------------------------------------------------------------------------------- serve


class _Run:
    """A script that runs on a thread of its own, up to the end of its models."""

    def __init__(self, script: str, arguments: List[str]) -> None:
        self.key = (script, tuple(arguments))
        self.models: Dict[str, Any] = {}
        self.taken: Dict[str, int] = {}
        #: The predictor of the models, if they are transformers or explainers.
        self.predictor: Any = None
        self.failure: Optional[str] = None
        self.error: Optional[BaseException] = None
        self._process = os.getpid()
        self._decided = threading.Event()
        self._unloaded = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"script-{os.path.basename(script)}", daemon=True)

    def begin(self) -> None:
        """Runs the script until it has called `ModelServer.start`, or has ended without."""
        self._thread.start()
        self._decided.wait()

    def started(self, server: Any, models: Any) -> None:
        """Called in place of `ModelServer.start`. Returns when the models are unloaded."""
        if os.getpid() != self._process:
            os._exit(0)  # a child of the script
        if not self._decided.is_set():
            try:
                self.models = _models_of(server, models)
                self.predictor = _predictor()
            except ScriptError as error:
                self.failure = str(error)
                self._decided.set()
                return
            self._decided.set()
        self._unloaded.wait()

    def _main(self) -> None:
        script, arguments = self.key
        # What a script finds on the main thread of `python SCRIPT`.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        if signal.signal.__module__ == "signal":  # a worker lets each thread set handlers
            signal.signal = _set_handler  # type: ignore[assignment]
        try:
            # KServe's package reads the arguments when it is imported.
            sys.argv = [script, *arguments]
            _intercept(_started)
            _execute(script, list(arguments))
            failure = "it ended without calling `kserve.ModelServer().start`"
        except SystemExit as error:
            failure = f"it exited with {error.code!r} before it called `ModelServer.start`"
        except BaseException as error:
            self.error = error
            failure = f"it raised {_shown(error)} before it called `ModelServer.start`"
            if self._decided.is_set():
                _print_exception(error)
        loop.close()
        if os.getpid() != self._process:
            os._exit(0)
        if not self._decided.is_set():
            self.failure = failure
            self._decided.set()

    def end(self) -> None:
        """Lets `ModelServer.start` return, and gives the script some time to clean up."""
        self._unloaded.set()
        self._thread.join(_CLEANUP_TIMEOUT)


_signal = signal.signal


def _set_handler(number: Any, handler: Any) -> Any:
    """Sets the handler of a signal, which only the main thread may. That of a script that is described is ignored."""
    if threading.current_thread() is threading.main_thread():
        return _signal(number, handler)
    return signal.getsignal(number)


_lock = threading.Lock()
#: The latest run of each script, which may have models that are not taken yet.
_runs: Dict[Tuple[str, Tuple[str, ...]], _Run] = {}
#: The run that is between its begin and its `ModelServer.start`; later ones are those of threads of the script.
_current: Optional[_Run] = None


def _started(server: Any, models: Any) -> None:
    assert _current is not None
    _current.started(server, models)


def take(script: str, arguments: List[str], name: str) -> Tuple[int, Any, Any, Callable[[], None]]:
    """Returns the position of a script's model, the model, its predictor if any, and a function to call once it is unloaded.

    A process runs a script once for all of its models, and again if one of them is reloaded.
    """
    global _current
    key = (script, tuple(arguments))
    with _lock:
        run = _runs.get(key)
        if run is None or name in run.taken or name not in run.models:
            run = _current = _Run(script, arguments)
            run.begin()
            if run.failure is None and name not in run.models:
                found = ", ".join(f"`{found}`" for found in run.models)
                run.failure = f"it no longer starts model `{name}`, but starts {found}"
            if run.failure is not None:
                run.end()
                raise ScriptError(f"cannot serve `{script}`: {run.failure}") from run.error
            _runs[key] = run
        run.taken[name] = 1
        taken = run
    position = list(taken.models).index(name)
    return position, taken.models[name], taken.predictor, lambda: _give_back(taken, name)


def _give_back(run: _Run, name: str) -> None:
    with _lock:
        run.taken[name] = 0
        if any(run.taken.values()):
            return
        if _runs.get(run.key) is run:
            del _runs[run.key]
    run.end()


class ScriptModel:
    """A model of a script. The parameters `extra` have the `script`, its `arguments`, and the `name` of the model."""

    def __new__(cls, settings: ModelSettings) -> MLModel:  # type: ignore[misc]
        """Runs the script, unless this process has done so for another of its models. Returns what calls the script's model."""
        parameters = settings.parameters
        extra: Dict[str, Any] = (parameters.extra if parameters is not None else None) or {}
        position, instance, predictor, give_back = take(extra["script"], extra["arguments"], extra["name"])
        try:
            model = wrap(settings, instance, predictor)
            model.position = position
            # One model has the routes of the script.
            if position == 0:
                model.add_handlers(handlers_of(_app()))
        except BaseException:
            give_back()
            raise
        unload = model.unload

        async def unload_and_give_back() -> bool:
            try:
                return await unload()
            finally:
                # The script may take some time to clean up.
                await asyncio.get_running_loop().run_in_executor(None, give_back)

        model.unload = unload_and_give_back  # type: ignore[method-assign]
        return model


def main() -> NoReturn:
    """Runs `python -c PROGRAM describe SCRIPT ARGS...`."""
    command, script, *arguments = sys.argv[1:]
    if command != "describe":
        raise SystemExit(f"unknown command {command!r}")
    _describe(os.path.abspath(script), arguments)
