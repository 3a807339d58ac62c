"""Custom handlers: methods of a model that answer REST routes of their own."""

import inspect
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._model import jsonable, to_json
from .._validate import Problems, ValidationError
from ..rest import Request, Response
from .frames import Buffer
from .signature import Run, Signature, is_response_class, receiver, scope_of

Pairs = List[Tuple[str, str]]


class Reply(NamedTuple):
    """What a client gets."""

    status: int
    headers: Pairs
    body: bytes


class Handler:
    """A method of a model, and the route that it answers."""

    __slots__ = ("is_async", "method", "name", "path", "signature")

    def __init__(self, path: str, method: str, bound: Callable[..., Any]) -> None:
        """Raises `MLServerError` for an argument that could never be given."""
        self.name = bound.__name__
        self.path = path
        self.method = method.upper()
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(bound))
        self.signature = Signature(bound, path)


async def invoke(handler: Handler, head: Dict[str, Any], body: Buffer, run: Run) -> Reply:
    """Answers a call; `run` runs what is the model's.

    Raises `MLServerError` for a request that the handler cannot take, and whatever the handler raises.
    """
    request = Request(
        head["method"], head["path"], head["query"], [*map(tuple, head["headers"])], bytes(body), head["path_params"]
    )
    try:
        result = await run(handler.signature.function, await handler.signature.read(request, run))
        if isinstance(result, Response):
            return _own(result)
        if is_response_class(type(result)):
            return await _starlette(result, request)
        return Reply(200, [("content-type", "application/json")], _json(handler, result))
    except Exception as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        return refusal


def _json(handler: Handler, result: Any) -> bytes:
    if handler.signature.returns is not None:
        problems = Problems()
        result = handler.signature.returns(result, ("response",), problems)
        if problems.found:
            raise ValidationError(f"what `{handler.name}` returned", problems.found)
    return to_json(jsonable(result)).encode()


def _own(response: Response) -> Reply:
    headers = [(name, str(value)) for name, value in response.headers.items()]
    if response.media_type is not None and not any(name.lower() == "content-type" for name, _ in headers):
        charset = "; charset=utf-8" if response.media_type.startswith("text/") else ""
        headers.append(("content-type", response.media_type + charset))
    return Reply(response.status_code, headers, response.body)


async def _starlette(response: Any, request: Request) -> Reply:
    """Lets a response of Starlette's say itself what it is, whichever it is."""
    status, headers = 500, []
    parts: List[bytes] = []

    async def send(message: Dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        elif message["type"] == "http.response.body":
            parts.append(bytes(message.get("body", b"")))

    await response(scope_of(request), receiver(request), send)
    return Reply(status, headers, b"".join(parts))


def _refusal(error: Exception) -> Optional[Reply]:
    """Returns the answer that an `HTTPException` of Starlette's or FastAPI's stands for."""
    bases = type(error).__mro__
    if not any(base.__module__ == "starlette.exceptions" and base.__name__ == "HTTPException" for base in bases):
        return None
    detail: Any = getattr(error, "detail", None)
    text = detail if isinstance(detail, str) else json.dumps(jsonable(detail))
    headers = [(str(name), str(value)) for name, value in (getattr(error, "headers", None) or {}).items()]
    headers.append(("content-type", "application/json"))
    return Reply(error.status_code, headers, to_json({"error": text}).encode())  # type: ignore[attr-defined]


__all__ = ["Handler", "Reply", "invoke"]
