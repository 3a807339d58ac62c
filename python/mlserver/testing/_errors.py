"""The errors of models, as clients receive them."""

__all__ = ["InferenceFailed", "LoadFailed", "ModelFailed", "UnloadFailed"]


class ModelFailed(Exception):
    """An error of a model, as a client of the server receives it."""

    def __init__(self, status: int, message: str, traceback: str = "") -> None:
        super().__init__(status, message, traceback)
        #: The HTTP status.
        self.status = status
        #: The text of `error` in the response's body.
        self.message = message
        #: The traceback that the server logs; empty if no code of the model has raised an exception.
        self.traceback = traceback

    def __str__(self) -> str:
        trace = f"\n\n{self.traceback.rstrip()}" if self.traceback else ""
        return f"{self.message} (status {self.status}){trace}"


class LoadFailed(ModelFailed):
    """The model cannot be loaded: its class cannot be imported, or `__init__` or `load` has raised an exception."""


class UnloadFailed(ModelFailed):
    """`unload` has raised an exception. The server only logs it."""


class InferenceFailed(ModelFailed):
    """A request has failed."""
