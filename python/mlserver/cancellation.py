"""Whether anybody still waits for the answer that the running code makes."""

from contextvars import ContextVar
from typing import Optional

__all__ = ["Cancellation", "cancellation_var", "cancelled"]


class Cancellation:
    """A flag that is raised once, from any thread."""

    __slots__ = ("raised",)

    def __init__(self) -> None:
        self.raised = False


#: The flag of the call that runs in this context.
cancellation_var: "ContextVar[Optional[Cancellation]]" = ContextVar("cancellation", default=None)


def cancelled() -> bool:
    """Tells whether the client has gone, or its time is over, so that the answer would go nowhere.

    Long work in a plain `def predict` asks now and then and returns early. Coroutines need not: they get
    `asyncio.CancelledError` where they wait.
    """
    flag = cancellation_var.get()
    return flag is not None and flag.raised
