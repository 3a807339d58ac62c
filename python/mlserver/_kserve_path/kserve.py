"""Stands for `mlserver._kserve` in processes that a script spawns, whose import path ends with this folder."""

import importlib.util
import sys

from mlserver import _kserve_imports

_kserve_imports.install()
_spec = next(filter(None, (finder.find_spec(__name__, None) for finder in reversed(sys.meta_path))))
_module = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _module
assert _spec.loader is not None
_spec.loader.exec_module(_module)
