"""The response that a custom handler may return to set status, headers and media type."""

from typing import Any, Dict, Mapping, Optional

from .._model import jsonable, to_json

__all__ = ["Response", "ServerSentEvent"]


class Response:
    """A response of a custom handler. `body` contains the bytes that are sent."""

    media_type: Optional[str] = "application/json"

    def __init__(
        self,
        content: Any = None,
        status_code: int = 200,
        headers: Optional[Mapping[str, str]] = None,
        media_type: Optional[str] = None,
        background: Any = None,
    ) -> None:
        """Renders `content` immediately. `background` exists for compatibility with the original and must be `None`."""
        if background is not None:
            raise ValueError("background tasks are not run; start a task in the handler instead")
        self.status_code = status_code
        self.headers: Dict[str, str] = dict(headers or {})
        if media_type is not None:
            self.media_type = media_type
        self.body = self.render(content)

    def render(self, content: Any) -> bytes:
        """Returns the body: JSON of `content`, which may contain bytes and NumPy values."""
        return to_json(jsonable(content)).encode()


class ServerSentEvent:
    """An event of a stream of responses."""

    def __init__(self, data: Any, *_args: Any, **_kwargs: Any) -> None:
        self.data = data

    def encode(self) -> bytes:
        """Returns the event as it is sent: one line of JSON, and an empty line."""
        return b"data: " + to_json(jsonable(self.data.model_dump())).encode() + b"\n\n"
