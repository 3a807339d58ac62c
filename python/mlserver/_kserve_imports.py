"""Makes `mlserver._kserve` importable as `kserve` where the real package is not installed."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Iterator, Optional, Sequence

__all__ = ["install"]

_NAME = "kserve"
_OURS = "mlserver._kserve"
#: What needs vLLM in the real package.
_OPENAI = "protocol.rest.openai"
#: The version of the package whose names and signatures `mlserver._kserve` has.
VERSION = "0.21.0"


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `kserve.*` in `mlserver._kserve`, as the same modules, once `kserve` itself is that package.

    It comes first, because otherwise the files would be found again below the path of the package, and be loaded twice.
    """

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        ours = sys.modules.get(_OURS)
        if not fullname.startswith(f"{_NAME}.") or ours is None or sys.modules.get(_NAME) is not ours:
            return None
        spec = self._spec(fullname)
        if spec is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: this `kserve` is that of mlserver, for models and scripts"
                " (install the `kserve` package in the model's environment)",
                name=fullname,
            )
        return spec

    def _spec(self, fullname: str) -> Optional[importlib.machinery.ModuleSpec]:
        try:
            spec = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            return None
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, self, origin=spec.origin, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name))
        spec.loader_state = module.__spec__  # which the import of `kserve` replaces
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        module.__spec__ = spec.loader_state


class _Package(_Modules):
    """Finds `kserve` in `mlserver._kserve`."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        return self._spec(fullname) if fullname == _NAME else None

    def find_distributions(self, context: Any = None) -> "Iterator[Any]":
        """Finds the version that this module stands for: `importlib.metadata` asks all finders."""
        if str(getattr(context, "name", None)).lower() == _NAME:
            yield _distribution()

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if _modules not in sys.meta_path:
            sys.meta_path.insert(0, _modules)
        # `kserve.utils` and others are attributes that a later import of the modules must not replace.
        for name in [name for name in sys.modules if name.startswith(f"{_OURS}.")]:
            sys.modules.setdefault(_NAME + name[len(_OURS) :], sys.modules[name])


class _OpenAI(_Modules):
    """Finds `kserve.protocol.rest.openai` in `mlserver._kserve` if the real package is there without vLLM, which it needs."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if not f"{fullname}.".startswith(f"{_NAME}.{_OPENAI}."):
            return None
        real = sys.modules.get(_NAME)
        if real is None or real is sys.modules.get(_OURS) or importlib.util.find_spec("vllm") is not None:
            return None
        return self._spec(fullname)


def _distribution() -> Any:
    from importlib import metadata  # takes long to import, and few models ask

    class Distribution(metadata.Distribution):
        """The metadata of KServe's package, without files."""

        def read_text(self, filename: str) -> Optional[str]:
            return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {VERSION}\n" if filename == "METADATA" else None

        def locate_file(self, path: Any) -> Any:
            return path

    return Distribution()


def _ours(name: str) -> str:
    return _OURS + name[len(_NAME) :]


_modules = _Modules()
_package = _Package()
_openai = _OpenAI()


def install() -> None:
    """Makes `kserve` importable. It comes last, so that a real package of the name is imported instead.

    Only what that package cannot import comes first.
    """
    if _package not in sys.meta_path:
        sys.meta_path.append(_package)
        sys.meta_path.insert(0, _openai)
