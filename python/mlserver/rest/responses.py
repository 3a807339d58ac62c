"""The response that a custom handler may return to set status, headers and media type."""

from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.cookies import SimpleCookie
from typing import Any, Dict, List, Mapping, Optional

from .._dump import jsonable, to_json

__all__ = ["Response", "ServerSentEvent"]


class _Headers(Dict[str, str]):
    """Headers by name, and any number of cookies."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.cookies: List[str] = []

    def items(self) -> Any:
        """Returns names and values; `set-cookie` once for each cookie."""
        return [*super().items(), *(("set-cookie", cookie) for cookie in self.cookies)]


class Response:
    """A response of a custom handler. `body` contains the bytes that are sent."""

    charset = "utf-8"
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
        self.headers = _Headers(headers or {})
        if media_type is not None:
            self.media_type = media_type
        self.body = self.render(content)

    def init_headers(self, headers: Optional[Mapping[str, str]] = None) -> None:
        """Replaces the headers."""
        self.headers = _Headers(headers or {})

    def set_cookie(
        self,
        key: str,
        value: str = "",
        max_age: Optional[int] = None,
        expires: Any = None,
        path: Optional[str] = "/",
        domain: Optional[str] = None,
        secure: bool = False,
        httponly: bool = False,
        samesite: Optional[str] = "lax",
    ) -> None:
        """Adds a cookie. `expires` is a time, a number of seconds from now, or text."""
        cookie = SimpleCookie()  # type: ignore[var-annotated,unused-ignore]
        cookie[key] = value
        if isinstance(expires, int):
            expires = datetime.now(timezone.utc) + timedelta(seconds=expires)
        if isinstance(expires, datetime):
            expires = format_datetime(expires.astimezone(timezone.utc), usegmt=True)
        attributes = {
            "max-age": max_age,
            "expires": expires,
            "path": path,
            "domain": domain,
            "secure": secure,
            "httponly": httponly,
            "samesite": samesite,
        }
        for name, attribute in attributes.items():
            if attribute is not None and attribute is not False:
                cookie[key][name] = attribute
        self.headers.cookies.append(cookie.output(header="").strip())

    def delete_cookie(self, key: str, path: str = "/", domain: Optional[str] = None, **options: Any) -> None:
        """Tells the client to forget a cookie."""
        self.set_cookie(key, max_age=0, expires=0, path=path, domain=domain, **options)

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
