"""The interfaces between the worker and its models that run objects of other servers."""

from typing import Any, Awaitable, Callable, Dict, List, Optional, Protocol, Sequence, Tuple, Union

from .cancellation import Cancellation
from .model import MLModel

__all__ = ["Asker", "WorkerHandler", "WorkerModel"]

_Buffer = Union[bytes, bytearray, memoryview]


class Asker(Cancellation):
    """The call that runs in a context, which may ask other models of the server."""

    async def ask(self, model: str, head: Dict[str, Any], tail: Tuple[_Buffer, ...]) -> Tuple[Dict[str, Any], _Buffer]:
        """Asks another model of the server, and returns head and tail of its answer. Can be awaited on any event loop.

        Raises `MLServerError` with the status and the message of a failure.
        """
        raise NotImplementedError


class WorkerHandler(Protocol):
    """A handler of a model, as the `loaded` frame describes it."""

    @property
    def name(self) -> str:
        """Its name in `call` frames."""

    @property
    def path(self) -> str:
        """The path of its route."""

    @property
    def method(self) -> str:
        """The HTTP method of its route."""

    @property
    def is_async(self) -> bool:
        """Whether it runs on an event loop."""

    @property
    def v1(self) -> Optional[str]:
        """What it is in KServe's V1, and called by `respond`; `None` for other routes."""

    @property
    def openai(self) -> Optional[str]:
        """The endpoint of OpenAI's API that it answers, also by `respond`; `None` for other routes, which `invoke` answers."""


class WorkerModel(MLModel):
    """A model that calls an object of another server, and that has more than what `MLModel` documents.

    The worker finds it by its type. It does not look for these methods on models of users, whose names are their own.
    """

    #: The position of its object among those of the other server, which would stop them in this order.
    position: int = 0

    def steps(self) -> List[str]:
        """Returns the models that this one asks."""
        return []

    def asks_servers(self) -> bool:
        """Returns whether it passes requests on to other servers, once it is loaded."""
        return False

    def handlers(self) -> Sequence[WorkerHandler]:
        """Returns what answers requests to routes of the other server, and to those that its models have added."""
        return []

    def bind(self, run_plain: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Runs plain functions of models with coroutines with `run_plain`, so that they do not block the event loop."""
