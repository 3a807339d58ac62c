"""The adapters of classes of other servers, which the worker asks in turn.

Each is small: what runs the models is imported for the first class that an adapter recognizes.
"""

from typing import Any, Callable, NamedTuple, Tuple

from . import _kserve_imports
from ._kserve_classes import is_kserve_class
from ._worker_model import WorkerModel
from .settings import ModelSettings

__all__ = ["ADAPTERS", "ModelAdapter"]


class ModelAdapter(NamedTuple):
    """Makes models of the worker from the classes of another server."""

    #: Makes the other server's names importable in environments without its package. Called before users' modules are imported.
    install: Callable[[], None]
    #: Returns whether what a user's settings name is a class of the other server.
    recognizes: Callable[[Any], bool]
    #: Creates an instance of such a class, and returns the model that runs it.
    adapt: Callable[[ModelSettings, Any], WorkerModel]


def _adapt_kserve(settings: ModelSettings, cls: Any) -> WorkerModel:
    from ._kserve_adapter import adapt

    return adapt(settings, cls)


ADAPTERS: Tuple[ModelAdapter, ...] = (ModelAdapter(_kserve_imports.install, is_kserve_class, _adapt_kserve),)
