"""Custom handlers: methods of a model that handle REST routes."""

import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._blocking import is_async
from .._dump import jsonable, to_json
from .._validate import Problems, ValidationError
from ..rest import Request, Response
from .failures import is_http_exception
from .frames import Buffer
from .signature import Run, Signature, is_response_class, receiver, scope_of

Pairs = List[Tuple[str, str]]


class Reply(NamedTuple):
    """The response to the client."""

    status: int
    headers: Pairs
    body: bytes


class Handler:
    """A method of a model, and its route."""

    __slots__ = ("is_async", "method", "name", "path", "signature")

    #: Not of KServe's V1 protocol.
    v1: Optional[str] = None

    def __init__(self, path: str, method: str, bound: Callable[..., Any]) -> None:
        """Raises `MLServerError` for an unsupported argument."""
        self.name = bound.__name__
        self.path = path
        self.method = method.upper()
        self.is_async = is_async(bound)
        self.signature = Signature(bound, path)

    async def invoke(self, head: Dict[str, Any], body: Buffer, run: Run) -> Reply:
        """Answers a call; see `invoke`."""
        return await invoke(self, head, body, run)


async def invoke(handler: Handler, head: Dict[str, Any], body: Buffer, run: Run) -> Reply:
    """Answers a call. `run` runs functions of the model.

    Raises `MLServerError` for a request with invalid arguments, and any exception that the handler raises.
    """
    request = request_of(head, body)
    try:
        result = await run(handler.signature.function, await handler.signature.read(request, run))
        if isinstance(result, Response):
            return _from_response(result)
        if is_response_class(type(result)):
            return await answer_asgi(result, request)
        return Reply(200, [("content-type", "application/json")], _to_json(handler, result))
    except Exception as error:
        reply = _http_exception_reply(error)
        if reply is None:
            raise
        return reply


def _to_json(handler: Handler, result: Any) -> bytes:
    if handler.signature.returns is not None:
        problems = Problems()
        result = handler.signature.returns(result, ("response",), problems)
        if problems.found:
            raise ValidationError(f"the result of `{handler.name}`", problems.found)
    return to_json(jsonable(result)).encode()


def _from_response(response: Response) -> Reply:
    headers = [(name, str(value)) for name, value in response.headers.items()]
    if response.media_type is not None and not any(name.lower() == "content-type" for name, _ in headers):
        charset = "; charset=utf-8" if response.media_type.startswith("text/") else ""
        headers.append(("content-type", response.media_type + charset))
    return Reply(response.status_code, headers, response.body)


def request_of(head: Dict[str, Any], body: Buffer) -> Request:
    """Returns the request of a call."""
    pairs: Any = [*map(tuple, head["headers"])]
    return Request(head["method"], head["path"], head["query"], pairs, bytes(body), head["path_params"])


async def answer_asgi(response: Any, request: Request) -> Reply:
    """Returns what an application of ASGI, such as any response of Starlette, sends."""
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


def _http_exception_reply(error: Exception) -> Optional[Reply]:
    """Returns the reply for an `HTTPException` of Starlette or FastAPI, and `None` for other exceptions."""
    if not is_http_exception(error):
        return None
    detail: Any = getattr(error, "detail", None)
    text = detail if isinstance(detail, str) else json.dumps(jsonable(detail))
    headers = [(str(name), str(value)) for name, value in (getattr(error, "headers", None) or {}).items()]
    headers.append(("content-type", "application/json"))
    return Reply(error.status_code, headers, to_json({"error": text}).encode())  # type: ignore[attr-defined]


__all__ = ["Handler", "Reply", "answer_asgi", "invoke", "request_of"]
