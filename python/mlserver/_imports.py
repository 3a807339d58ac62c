"""Imports user code from models' folders, which may have modules of the same names.

Each folder has modules of its own. If several folders have a module of one name, `sys.modules` has a stand-in for all of them,
whose attributes are those of the module of the folder whose code asks. So pickles, processes and imports inside functions find
the module of their own folder.
"""

import difflib
import importlib
import os
import sys
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any, Dict, Iterator, List, Optional

_lock = threading.RLock()

#: The folder of the model whose code runs.
folder_var: "ContextVar[Optional[str]]" = ContextVar("model_folder", default=None)

#: Whether that model is loading: its folder then comes before all other modules.
_loading_var: "ContextVar[bool]" = ContextVar("model_loading", default=False)

#: The modules that were imported from each folder, by name.
_modules: Dict[str, Dict[str, ModuleType]] = {}

#: Whether several folders have a module, by its name without those of packages.
_contested: Dict[str, bool] = {}

#: How many callers are searched for code of a model's folder.
_MAX_CALLERS = 50


def import_object(path: str, folder: Optional[str] = None) -> Any:
    """Returns the object at a dotted path such as `models.MyModel`. `folder` is searched first.

    Modules in models' folders are imported again each time, so that a reload sees changed files, and so that each folder has
    its own `models` and helpers. Modules of other folders are hidden while this one is imported. They are importable again
    afterwards, for late imports and pickles.

    Raises `ImportError` if the module or object does not exist, and any exception that the module itself raises.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ImportError(f"`{path}` is not an import path: expected a module and a class, as in `models.MyModel`")
    if folder is None:
        module = importlib.import_module(module_name)
    else:
        with _lock:
            folder = _known(folder)
            for old in list(_modules[folder]):
                sys.modules.pop(old, None)
            _modules[folder].clear()
            with _only(folder):
                module = importlib.import_module(module_name)
    try:
        return getattr(module, name)
    except AttributeError:
        where = getattr(module, "__file__", None) or "no file"
        classes = [found for found, value in vars(module).items() if isinstance(value, type)]
        near = difflib.get_close_matches(name, classes, 1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ImportError(f"module `{module_name}` ({where}) has no `{name}`{hint}") from None


@contextmanager
def importing_from(folder: Optional[str]) -> Iterator[None]:
    """Searches a model's folder first in the `with` block, and later wherever code of that folder imports."""
    if folder is None:
        yield
        return
    with _lock:
        known = _known(folder)
    if _FolderFinder not in sys.meta_path:
        position = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(position, _FolderFinder)
    # For code that is not in the folder, such as unpickling on threads of libraries.
    if folder not in sys.path:
        sys.path.append(folder)
    tokens = folder_var.set(known), _loading_var.set(True)
    try:
        yield
    finally:
        folder_var.reset(tokens[0])
        _loading_var.reset(tokens[1])


def _known(folder: str) -> str:
    """Returns the absolute path of a folder, which is searched from now on."""
    folder = os.path.abspath(folder)
    if folder not in _modules:
        _modules[folder] = {}
        _contested.clear()
        for name in _loaded():
            _publish(name)
    return folder


def _loaded() -> List[str]:
    return list({name: None for modules in list(_modules.values()) for name in list(modules)})


@contextmanager
def _only(folder: str) -> Iterator[None]:
    """In the `with` block, imports find the modules of one folder, which comes first on the path, and of no other one."""
    own = _modules[folder]
    for name in _loaded():
        sys.modules.pop(name, None)
    sys.modules.update(own)
    importlib.invalidate_caches()
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for new in _below(folder, sys.modules.keys() - before):
            if not isinstance(sys.modules[new], _SharedModule):
                own[new] = sys.modules[new]
        for name in _loaded():
            _publish(name)


def _below(folder: str, names: Any) -> List[str]:
    """Returns the names of those modules whose file is below `folder`."""
    prefix = os.path.join(folder, "")
    found = []
    for name in list(names):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and os.path.abspath(file).startswith(prefix):
            found.append(name)
    return found


def _publish(name: str) -> None:
    """Makes a module importable: itself, or the stand-in for those of several folders."""
    if _is_contested(name):
        if not isinstance(sys.modules.get(name), _SharedModule):
            sys.modules[name] = _SharedModule(name)
            _follow_threads_and_processes()
    else:
        for modules in list(_modules.values()):
            if name in modules:
                sys.modules[name] = modules[name]


def _is_contested(name: str) -> bool:
    """Returns whether several folders have a module, imported or not."""
    top = name.partition(".")[0]
    found = _contested.get(top)
    if found is None:
        found = _contested[top] = sum(_has(folder, top) for folder in list(_modules)) > 1
    return found


def _has(folder: str, name: str) -> bool:
    modules = _modules[folder]
    top = name.partition(".")[0]
    return top in modules or PathFinder.find_spec(top, [folder]) is not None


class _SharedModule(ModuleType):
    """Stands for the modules of several folders that have one name: its attributes are those of the caller's folder."""

    def __getattribute__(self, name: str) -> Any:
        return getattr(_module_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_module_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_module_of(self), name)

    def __dir__(self) -> List[str]:
        return dir(_module_of(self))

    def __repr__(self) -> str:
        return repr(_module_of(self))


def _module_of(shared: ModuleType) -> ModuleType:
    """Returns the module of the folder whose code asks, or the one that was imported last if no folder asks."""
    name: str = ModuleType.__getattribute__(shared, "__dict__")["__name__"]
    folder = _current_folder()
    if folder is not None and folder in _modules:
        found = _modules[folder].get(name)
        if found is not None:
            return found
        if _has(folder, name):
            with _lock, _only(folder):
                return importlib.import_module(name)
    return next(modules[name] for modules in reversed(list(_modules.values())) if name in modules)


def _current_folder() -> Optional[str]:
    """Returns the folder of the model whose call runs, or else of the calling code, or else of what started the thread."""
    folder = folder_var.get()
    if folder is not None:
        return folder
    frame: Optional[FrameType] = sys._getframe(1)
    for _ in range(_MAX_CALLERS):
        if frame is None:
            break
        folder = _folder_of(frame.f_code.co_filename)
        if folder is not None:
            return folder
        frame = frame.f_back
    return getattr(threading.current_thread(), "_mlserver_folder", None)


def _folder_of(file: str) -> Optional[str]:
    """Returns the innermost folder of a model that a file is in."""
    found = [folder for folder in list(_modules) if file.startswith(os.path.join(folder, ""))]
    return max(found, key=len, default=None)


class _FolderFinder:
    """Finds modules in the folder of the model whose code imports.

    Unlike an entry of `sys.path`, it does not concern the code of other models, which runs at the same time.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if path is None:
            folder = _current_folder()
            spec = None
            # Once a model is loaded, its files do not replace modules that libraries import late.
            if folder is not None and (_loading_var.get() or PathFinder.find_spec(name, _other_path()) is None):
                spec = PathFinder.find_spec(name, [folder], target)
        else:
            folder = next(filter(None, map(_folder_of, map(_with_separator, path))), None)
            spec = None if folder is None else PathFinder.find_spec(name, path, target)
        if folder is not None and spec is not None and spec.loader is not None:
            spec.loader = _FolderLoader(spec.loader, folder)  # type: ignore[assignment]
        return spec


def _other_path() -> List[str]:
    """Returns the search path without models' folders."""
    return [entry for entry in sys.path if os.path.abspath(entry) not in _modules]


def _with_separator(path: Any) -> str:
    return os.path.join(str(path), "")


class _FolderLoader:
    """Loads a module of a folder, and records that the folder has it."""

    def __init__(self, loader: Any, folder: str) -> None:
        self._loader = loader
        self._folder = folder

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module's own loader, for those who read its source.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # Without the lock: the import system holds another one.
        _modules[self._folder][module.__name__] = module
        if _is_contested(module.__name__) and sys.modules.get(module.__name__) is module and not _lock_is_held():
            _publish(module.__name__)


def _lock_is_held() -> bool:
    """Returns whether this thread imports modules of a folder, which are published at its end."""
    return bool(_lock._is_owned())  # type: ignore[attr-defined]


def _follow_threads_and_processes() -> None:
    """Makes threads remember the folder whose code has started them, and new interpreters search it before other folders."""
    if hasattr(threading.Thread.start, "_mlserver_original"):
        return
    original = threading.Thread.start

    def start(self: threading.Thread) -> None:
        folder = _current_folder()
        if folder is not None:
            self._mlserver_folder = folder  # type: ignore[attr-defined]
        original(self)

    start._mlserver_original = original  # type: ignore[attr-defined]
    threading.Thread.start = start  # type: ignore[method-assign]

    from multiprocessing import spawn

    preparation_data = spawn.get_preparation_data

    def get_preparation_data(name: str) -> Any:
        data = preparation_data(name)
        folder = _current_folder()
        if folder is not None and "sys_path" in data:
            data["sys_path"] = [*_other_path(), folder, *(path for path in data["sys_path"] if path in _modules)]
        return data

    spawn.get_preparation_data = get_preparation_data
