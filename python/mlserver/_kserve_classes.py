"""Recognizes classes that extend those of KServe, of the real package or of ours, without importing either."""

from typing import Any, Optional, Tuple, Type

__all__ = ["MODEL_MODULES", "is_kserve_class", "package_of"]

#: The modules of the base classes.
MODEL_MODULES: Tuple[str, ...] = ("kserve.model", "mlserver._kserve.model")


def package_of(cls: Type[Any]) -> Optional[str]:
    """Returns the name of the package whose base class a class extends, or `None`."""
    for base in cls.__mro__:
        if base.__name__ in ("BaseKServeModel", "Model") and base.__module__ in MODEL_MODULES:
            return base.__module__.rpartition(".")[0]
    return None


def is_kserve_class(cls: Any) -> bool:
    """Returns whether a class extends a base class of KServe."""
    return isinstance(cls, type) and package_of(cls) is not None
