"""What the worker asks of its own models that run objects of other servers, and what these ask of the worker."""

from typing import Any, Awaitable, Callable, Dict, List, Sequence, Tuple, Union

from .cancellation import Cancellation
from .model import MLModel

__all__ = ["Adapter", "Asker"]

_Buffer = Union[bytes, bytearray, memoryview]


class Asker(Cancellation):
    """The call that runs in a context, which may ask other models of the server."""

    async def ask(self, model: str, head: Dict[str, Any], tail: Tuple[_Buffer, ...]) -> Tuple[Dict[str, Any], _Buffer]:
        """Asks another model of the server, and returns head and tail of its answer. Can be awaited on any event loop.

        Raises `MLServerError` with the status and the message of a failure.
        """
        raise NotImplementedError


class Adapter(MLModel):
    """A model that calls an object of another server, and that has more than what `MLModel` documents.

    The worker finds it by its type. It does not look for these methods on models of users, whose names are their own.
    """

    #: The position of its object among those of the other server, which would stop them in this order.
    position: int = 0

    def steps(self) -> List[str]:
        """Returns the models that this one asks."""
        return []

    def v1_handlers(self) -> Sequence[Any]:
        """Returns what answers requests of KServe's V1, and of other routes of its models."""
        return []

    def bind(self, run_plain: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Runs plain functions of models with coroutines with `run_plain`, so that they do not block the event loop."""
