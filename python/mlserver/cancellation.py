"""Reports whether the running call has been cancelled."""

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
    """Returns whether the running call is cancelled: its client has disconnected, or its deadline has passed.

    A plain `def predict` that runs long should check it regularly and return early. Coroutines need not, because
    `asyncio.CancelledError` is raised where they wait.
    """
    flag = cancellation_var.get()
    return flag is not None and flag.raised
