"""Custom handlers: methods of a model that handle REST routes."""

import asyncio
import inspect
import json
from typing import Any, AsyncGenerator, Callable, Dict, List, Optional, Union, cast

from .._blocking import is_async
from .._dump import jsonable, to_json
from .._replies import EVENT_HEADERS, Pairs, Reply, StreamedReply
from .._validate import Problems, ValidationError
from ..rest import Request, Response
from .failures import is_http_exception
from .frames import Buffer
from .signature import Run, Signature, is_response_class, receiver, scope_of

#: What a handler answers with.
AnyReply = Union[Reply, StreamedReply]


class Handler:
    """A method of a model, and its route."""

    __slots__ = ("is_async", "method", "name", "path", "signature")

    #: Neither of KServe's V1 protocol nor of OpenAI's API.
    v1: Optional[str] = None
    openai: Optional[str] = None

    def __init__(self, path: str, method: str, bound: Callable[..., Any]) -> None:
        """Raises `MLServerError` for an unsupported argument."""
        self.name = bound.__name__
        self.path = path
        self.method = method.upper()
        self.is_async = is_async(bound)
        self.signature = Signature(bound, path)

    async def invoke(self, head: Dict[str, Any], body: Buffer, run: Run) -> AnyReply:
        """Answers a call; see `invoke`."""
        return await invoke(self, head, body, run)


async def invoke(handler: Handler, head: Dict[str, Any], body: Buffer, run: Run) -> AnyReply:
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
        if inspect.isasyncgen(result):
            return StreamedReply(200, EVENT_HEADERS, _events(cast("AsyncGenerator[Any, None]", result)))
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


async def _events(items: "AsyncGenerator[Any, None]") -> "AsyncGenerator[bytes, None]":
    """Yields the items of a handler as events. Text and bytes are sent as they are."""
    try:
        async for item in items:
            if isinstance(item, str):
                yield item.encode()
            elif isinstance(item, (bytes, bytearray, memoryview)):
                yield bytes(item)
            else:
                yield b"data: " + to_json(jsonable(item)).encode() + b"\n\n"
    finally:
        await items.aclose()


async def answer_asgi(application: Any, request: Request) -> AnyReply:
    """Returns what an application of ASGI, such as any response of Starlette, sends.

    It is sent while it is made, unless the application says how long it is.
    """
    run = _AsgiRun(application, request)
    try:
        await run.start()
        if run.is_whole():
            return Reply(run.status, run.headers, b"".join([piece async for piece in run.pieces()]))
    except BaseException:
        await run.close()
        raise
    return StreamedReply(run.status, run.headers, run.pieces())


class _AsgiRun:
    """An application that answers one request. It waits in `send` until its message is taken."""

    def __init__(self, application: Any, request: Request) -> None:
        self.status = 500
        self.headers: Pairs = []
        self._message: Optional[Dict[str, Any]] = None
        #: Woken when there is a message, or when it has been taken.
        self._waiters: List[asyncio.Future[None]] = []
        self._task = asyncio.ensure_future(self._run(application, request))

    async def _run(self, application: Any, request: Request) -> None:
        try:
            await application(scope_of(request), receiver(request), self._send)
        finally:
            self._wake()

    async def start(self) -> None:
        """Waits for the first message with a part of the body, and reads status and headers."""
        while True:
            message = await self._next()
            if message is None:
                return
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
                self._take()
            else:
                return

    def is_whole(self) -> bool:
        """Returns whether the length of the body is known, or whether all of it is there."""
        message = self._message
        is_last = message is None or not message.get("more_body", False)
        return is_last or any(name.lower() == "content-length" for name, _ in self.headers)

    async def pieces(self) -> "AsyncGenerator[bytes, None]":
        """Yields the parts of the body, and ends the application."""
        try:
            while True:
                message = await self._next()
                if message is None:
                    return
                is_last = not message.get("more_body", False)
                if message["type"] == "http.response.body" and message.get("body"):
                    yield bytes(message["body"])
                self._take()
                if is_last:
                    # What it does afterwards, such as its background tasks, belongs to the call.
                    await self._task
                    return
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancels the application, unless it has ended."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send(self, message: Dict[str, Any]) -> None:
        self._message = message
        self._wake()
        while self._message is message:
            await self._wait()

    async def _next(self) -> Optional[Dict[str, Any]]:
        """Returns the message that waits to be taken, or `None` if the application has ended. Raises its exception."""
        while self._message is None:
            if self._task.done():
                self._task.result()
                return None
            await self._wait()
        return self._message

    def _take(self) -> None:
        self._message = None
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


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
