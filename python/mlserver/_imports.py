"""Imports user code from a model's folder, isolated from the modules of other models' folders."""

import importlib
import os
import sys
import threading
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Set

_lock = threading.RLock()

# The names of the modules in `sys.modules` that were imported from models' folders.
_local: Set[str] = set()


def import_object(path: str, folder: Optional[str] = None) -> Any:
    """Returns the object at a dotted path such as `models.MyModel`. `folder` is searched first.

    Modules in models' folders are imported again each time, so that a reload sees changed files, and so that each folder has
    its own `models` and helpers. Modules that were imported before stay alive in the objects that use them.

    Raises `ImportError` if the module or object does not exist, and any exception that the module itself raises.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ImportError(f"`{path}` is not an import path: expected a module and a class, as in `models.MyModel`")
    with _lock, _first_on_path(folder):
        if folder is not None:
            _forget_local_modules()
        before = set(sys.modules)
        try:
            module = importlib.import_module(module_name)
        finally:
            if folder is not None:
                _local.update(_below(folder, sys.modules.keys() - before))
    try:
        return getattr(module, name)
    except AttributeError:
        where = getattr(module, "__file__", None) or "no file"
        raise ImportError(f"module `{module_name}` ({where}) has no `{name}`") from None


def _forget_local_modules() -> None:
    for name in _local:
        sys.modules.pop(name, None)
    _local.clear()
    importlib.invalidate_caches()


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
