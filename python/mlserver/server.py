"""Starts the server from Python."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any, Dict, List, Optional, Sequence

from ._executable import find_executable
from .errors import MLServerError
from .repository.repository import DEFAULT_MODEL_SETTINGS_FILENAME
from .settings import ModelSettings, Settings

__all__ = ["HANDLED_SIGNALS", "MLServer", "find_executable"]

HANDLED_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]

#: Parameters that are paths, relative to the folder of the settings.
_PATHS = ("uri", "environment_path", "environment_tarball")


class MLServer:
    """The server as a child process, which serves the given models until it is stopped.

    async def main():
        settings = Settings(http_port=8080)
        await MLServer(settings).start([ModelSettings(name="sum", implementation=SumModel)])

    if __name__ == "__main__":
        asyncio.run(main())

    Workers import the class of a model by its name. A class in the script itself is imported from the script, so the script
    must start the server below `if __name__ == "__main__"`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: Optional[asyncio.subprocess.Process] = None
        self._is_started = False
        #: The last signal for the server. It is sent later if the process has not started.
        self._signal: Optional[int] = None

    async def start(self, models_settings: Sequence[ModelSettings] = ()) -> None:
        """Starts the server, and returns when it has stopped: after `stop`, or SIGINT, SIGTERM or SIGQUIT.

        Without models, none is loaded, but the repository API can load those of `model_repository_root`.

        Raises `MLServerError` if the executable is missing, or if the server fails, for example because a model cannot load.
        """
        if self._is_started:
            raise MLServerError("the server has been started already", 500)
        executable = find_executable()
        folder = tempfile.mkdtemp(prefix="mlserver-")
        try:
            self._is_started = True
            self._signal = None
            _write_repository(folder, self._settings, models_settings)
            handled = self._handle_signals()
            try:
                # A session of its own: the signals of a terminal reach the server once, from here.
                self._process = await asyncio.create_subprocess_exec(
                    executable, "start", folder, env=_environment(), start_new_session=True
                )
                if self._signal is not None:
                    self._send(self._signal)
                code = await self._process.wait()
            finally:
                self._ignore_signals(handled)
                if self._process is not None and self._process.returncode is None:  # this coroutine is cancelled
                    await self.stop()
                self._process = None
            # The signal itself ends a process that does not handle signals yet.
            if code not in (0, -(self._signal or 0)):
                raise MLServerError(f"`{executable} start` ended with exit code {code}", 500)
        finally:
            self._is_started = False
            shutil.rmtree(folder, ignore_errors=True)

    async def stop(self, sig: Optional[int] = None) -> None:
        """Stops the server as `SIGTERM` does, and waits until it has stopped."""
        if self._is_started:
            self._send(signal.SIGTERM if sig is None else sig)
        if self._process is not None:
            await self._process.wait()

    def _send(self, sig: int) -> None:
        self._signal = sig
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                self._process.send_signal(sig)

    def _handle_signals(self) -> List[signal.Signals]:
        """Passes signals on to the server. Only the main thread can handle signals."""
        if threading.current_thread() is not threading.main_thread():
            return []
        loop = asyncio.get_running_loop()
        for each in HANDLED_SIGNALS:
            loop.add_signal_handler(each, self._send, each)
        return HANDLED_SIGNALS

    def _ignore_signals(self, handled: List[signal.Signals]) -> None:
        loop = asyncio.get_running_loop()
        for each in handled:
            loop.remove_signal_handler(each)


def _environment() -> Dict[str, str]:
    """Returns the environment of the server. Workers find the modules that this process finds, with the same interpreter."""
    installed = tuple(os.path.join(prefix, "") for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    own = [os.path.abspath(entry) for entry in sys.path]
    paths = [entry for entry in own if not entry.startswith(installed) and os.path.isdir(entry)]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in dict.fromkeys([*paths, *known]) if entry)
    environment.setdefault("MLSERVER_PYTHON_EXECUTABLE", sys.executable)
    return environment


def _write_repository(folder: str, settings: Settings, models_settings: Sequence[ModelSettings]) -> None:
    """Writes the settings of the server and of the models to a folder, in the form that `mlserver start` reads."""
    values = json.loads(settings.json(exclude_none=False))
    root = os.path.abspath(values.pop("model_repository_root", None) or ".")
    if models_settings:
        # The models are those of this folder, regardless of the repository.
        values.pop("model_repository_implementation", None)
        values.pop("model_repository_implementation_args", None)
        values["load_models_at_startup"] = True
    else:
        values["load_models_at_startup"] = False
        os.symlink(root, os.path.join(folder, "models"))
    _write_json(folder, "settings.json", values)
    taken = set()
    for index, model_settings in enumerate(models_settings):
        name = model_settings.name
        if not re.fullmatch(r"\w[\w.-]*", name) or name in taken or name == "settings.json":
            name = f"model-{index}"
        taken.add(name)
        model_folder = os.path.join(folder, name)
        os.mkdir(model_folder)
        if model_settings._source:
            _link_siblings(os.path.abspath(model_settings._source), model_folder)
        _write_json(model_folder, DEFAULT_MODEL_SETTINGS_FILENAME, _model_values(model_settings))


def _write_json(folder: str, name: str, values: Dict[str, Any]) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(values, file)


def _link_siblings(source: str, model_folder: str) -> None:
    """Links what is beside a model's settings, which may import it, except for the folders of other models."""
    folder = os.path.dirname(source)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name in (DEFAULT_MODEL_SETTINGS_FILENAME, "settings.json"):
            continue
        if os.path.isdir(path) and any(DEFAULT_MODEL_SETTINGS_FILENAME in files for _, _, files in os.walk(path)):
            continue
        os.symlink(path, os.path.join(model_folder, name))


def _model_values(model_settings: ModelSettings) -> Dict[str, Any]:
    values: Dict[str, Any] = json.loads(model_settings.json())
    values["implementation"] = _importable(values.get("implementation", model_settings.implementation_))
    parameters = values.get("parameters") or {}
    folder = os.path.dirname(os.path.abspath(model_settings._source)) if model_settings._source else os.getcwd()
    for name in _PATHS:
        path = parameters.get(name)
        if not path or re.match(r"\w+://", path):
            continue
        # `load_model_settings` sets a missing URI to the folder itself, relative to the working directory.
        is_folder = os.path.abspath(path) == folder
        parameters[name] = folder if is_folder else os.path.normpath(os.path.join(folder, path))
    return values


def _importable(path: str) -> str:
    """Returns an import path that is valid in other processes, for a class whose module may be the running script."""
    if "<locals>" in path:
        raise MLServerError(
            f"workers cannot import `{path}`: define the class at the top level of a module, not in a function", 500
        )
    module, _, name = path.partition(".")
    if module != "__main__":
        return path
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"{spec.name}.{name}"
    file = getattr(main, "__file__", None)
    if file is None:
        raise MLServerError(
            f"workers cannot import `{name}`, which is defined in an interactive session: define it in a file", 500
        )
    return f"{os.path.splitext(os.path.basename(file))[0]}.{name}"
