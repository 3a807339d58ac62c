"""Imports user code from a model's folder, isolated from the modules of other models' folders."""

import difflib
import importlib
import os
import sys
import threading
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Dict, Iterator, List, Optional, Tuple

_lock = threading.RLock()

# The modules in `sys.modules` that were imported from models' folders, and their folders, by name.
_local: Dict[str, Tuple[ModuleType, str]] = {}


def import_object(path: str, folder: Optional[str] = None) -> Any:
    """Returns the object at a dotted path such as `models.MyModel`. `folder` is searched first.

    Modules in models' folders are imported again each time, so that a reload sees changed files, and so that each folder has
    its own `models` and helpers. Modules of other folders are hidden while this one is imported. They are importable again
    afterwards, for late imports and pickles, unless this folder has modules of the same names.

    Raises `ImportError` if the module or object does not exist, and any exception that the module itself raises.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ImportError(f"`{path}` is not an import path: expected a module and a class, as in `models.MyModel`")
    with _lock, _first_on_path(folder):
        others = {} if folder is None else _hide_local_modules(os.path.abspath(folder))
        before = set(sys.modules)
        try:
            module = importlib.import_module(module_name)
        finally:
            if folder is not None:
                for new in _below(folder, sys.modules.keys() - before):
                    _local[new] = sys.modules[new], os.path.abspath(folder)
                _show_again(others)
    try:
        return getattr(module, name)
    except AttributeError:
        where = getattr(module, "__file__", None) or "no file"
        classes = [found for found, value in vars(module).items() if isinstance(value, type)]
        near = difflib.get_close_matches(name, classes, 1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ImportError(f"module `{module_name}` ({where}) has no `{name}`{hint}") from None


def _hide_local_modules(folder: str) -> Dict[str, Tuple[ModuleType, str]]:
    """Removes the modules of all folders, and returns those of other folders than this one."""
    hidden = {name: (module, where) for name, (module, where) in _local.items() if where != folder}
    for name in _local:
        sys.modules.pop(name, None)
    _local.clear()
    importlib.invalidate_caches()
    return hidden


def _show_again(hidden: Dict[str, Tuple[ModuleType, str]]) -> None:
    for name, (module, folder) in hidden.items():
        if name not in sys.modules:
            sys.modules[name] = module
            _local[name] = module, folder


def _below(folder: str, names: Any) -> List[str]:
    """Returns the names of those modules whose file is below `folder`."""
    prefix = os.path.join(os.path.abspath(folder), "")
    found = []
    for name in list(names):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and os.path.abspath(file).startswith(prefix):
            found.append(name)
    return found


@contextmanager
def _first_on_path(folder: Optional[str]) -> Iterator[None]:
    if folder is None:
        yield
        return
    entry = os.path.abspath(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
