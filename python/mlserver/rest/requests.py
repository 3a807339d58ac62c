"""The request of a custom handler, with the attributes and methods of Starlette's `Request`."""

import json
from types import SimpleNamespace
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import parse_qsl, urlsplit

from ..cancellation import cancelled

__all__ = ["URL", "Headers", "QueryParams", "Request"]

Pairs = Sequence[Tuple[str, str]]


class Headers(Mapping[str, str]):
    """Headers. Names are case-insensitive; the first value of a repeated header counts."""

    def __init__(self, pairs: Pairs = ()) -> None:
        self._pairs = [(name.lower(), value) for name, value in pairs]

    def getlist(self, key: str) -> List[str]:
        """Returns all values of a header."""
        key = key.lower()
        return [value for name, value in self._pairs if name == key]

    @property
    def raw(self) -> List[Tuple[bytes, bytes]]:
        """Names and values as bytes."""
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._pairs]

    def __getitem__(self, key: str) -> str:
        key = key.lower()
        for name, value in self._pairs:
            if name == key:
                return value
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and any(name == key.lower() for name, _ in self._pairs)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def __repr__(self) -> str:
        return f"Headers({self._pairs!r})"


class QueryParams(Mapping[str, str]):
    """The parameters of a query string. The last value of a repeated parameter counts."""

    def __init__(self, query: str = "") -> None:
        self._query = query
        self._pairs = parse_qsl(query, keep_blank_values=True)
        self._last = dict(self._pairs)

    def getlist(self, key: str) -> List[str]:
        """Returns all values of a parameter."""
        return [value for name, value in self._pairs if name == key]

    def multi_items(self) -> List[Tuple[str, str]]:
        """Returns names and values, including repeated ones."""
        return list(self._pairs)

    def __getitem__(self, key: str) -> str:
        return self._last[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __str__(self) -> str:
        return self._query

    def __repr__(self) -> str:
        return f"QueryParams({self._query!r})"


class URL(str):
    """A URL and its components."""

    @property
    def scheme(self) -> str:
        """The part before the colon."""
        return urlsplit(self).scheme

    @property
    def netloc(self) -> str:
        """Host and port."""
        return urlsplit(self).netloc

    @property
    def hostname(self) -> Optional[str]:
        """The host."""
        return urlsplit(self).hostname

    @property
    def port(self) -> Optional[int]:
        """The port, if the URL has one."""
        return urlsplit(self).port

    @property
    def path(self) -> str:
        """The path."""
        return urlsplit(self).path

    @property
    def query(self) -> str:
        """The query string, without the question mark."""
        return urlsplit(self).query


class Request(Mapping[str, Any]):
    """A call to a custom handler. A handler receives it in an argument annotated with this class, or with Starlette's.

    It is a mapping of the call's ASGI scope.
    """

    def __init__(
        self,
        method: Union[str, Mapping[str, Any]],
        path: str = "/",
        query: str = "",
        headers: Pairs = (),
        body: bytes = b"",
        path_params: Optional[Dict[str, Any]] = None,
    ) -> None:
        if not isinstance(method, str):  # an ASGI scope, as for Starlette's class
            scope = method
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope.get("headers", ())]
            query = scope.get("query_string", b"").decode()
            self.__init__(scope["method"], scope["path"], query, pairs, b"", scope.get("path_params"))  # type: ignore[misc]
            return
        self.method = method
        self.path_params: Dict[str, Any] = path_params or {}
        self.headers = Headers(headers)
        self.query_params = QueryParams(query)
        #: Arbitrary state that handlers may keep with the request.
        self.state = SimpleNamespace()
        #: The client's address is not passed to the worker.
        self.client = None
        self._body = body
        host = self.headers.get("host", "localhost")
        self.base_url = URL(f"http://{host}/")
        self.url = URL(f"http://{host}{path}{'?' if query else ''}{query}")

    @property
    def scope(self) -> Dict[str, Any]:
        """The ASGI scope of the call."""
        return {
            "type": "http",
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.url.path,
            "raw_path": self.url.path.encode(),
            "query_string": self.url.query.encode(),
            "root_path": "",
            "headers": self.headers.raw,
            "server": (self.url.hostname, self.url.port or 80),
            "client": None,
            "path_params": self.path_params,
        }

    def __getitem__(self, key: str) -> Any:
        return self.scope[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scope)

    def __len__(self) -> int:
        return len(self.scope)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name in ("app", "auth", "session", "user", "url_for"):
            raise AttributeError(f"`{name}` needs an application of Starlette, which the server is not")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def cookies(self) -> Dict[str, str]:
        """The cookies, by name."""
        cookies = {}
        for header in self.headers.getlist("cookie"):
            for cookie in header.split(";"):
                name, found, value = cookie.partition("=")
                if found:
                    cookies[name.strip()] = value.strip().strip('"')
        return cookies

    async def body(self) -> bytes:
        """Returns the body, decompressed if it came compressed."""
        return self._body

    async def stream(self) -> AsyncIterator[bytes]:
        """Yields the body."""
        if self._body:
            yield self._body
        yield b""

    async def json(self) -> Any:
        """Parses the body as JSON."""
        return json.loads(self._body)

    async def form(self) -> QueryParams:
        """Returns the fields of a form with content type `application/x-www-form-urlencoded`."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/x-www-form-urlencoded":
            raise ValueError(f"a form of the type {kind or 'unknown'!r} cannot be read; read the body instead")
        return QueryParams(self._body.decode())

    async def is_disconnected(self) -> bool:
        """Returns whether the client has disconnected."""
        return cancelled()
