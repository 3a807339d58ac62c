"""Replies of handlers: whole, or in pieces that are sent while they are made."""

import inspect
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, List, NamedTuple, Optional, Tuple

__all__ = ["EVENT_HEADERS", "Pairs", "Reply", "ReplyInstead", "RunPlain", "StreamedReply", "close", "iterate"]

Pairs = List[Tuple[str, str]]

#: Runs a plain function of a model where its plain functions run.
RunPlain = Callable[[Callable[[], Any]], Awaitable[Any]]

#: The headers of a reply that consists of server-sent events.
EVENT_HEADERS: Pairs = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


class Reply(NamedTuple):
    """The response to the client."""

    status: int
    headers: Pairs
    body: bytes
    #: The tokens that the request took, if the model says so.
    usage: Optional[Dict[str, int]] = None


class StreamedReply(NamedTuple):
    """The beginning of a response to the client, and the pieces of its body."""

    status: int
    headers: Pairs
    pieces: "AsyncGenerator[bytes, None]"
    #: Returns the tokens that the request took, once all pieces have been made.
    usage: Callable[[], Optional[Dict[str, int]]] = lambda: None


class ReplyInstead(Exception):
    """Raised by the pieces of a reply, before the first one: the reply that is sent instead."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


_END = object()


async def iterate(source: Any, run_plain: RunPlain) -> "AsyncGenerator[Any, None]":
    """Yields the items of an iterator, asynchronous or plain, and closes it. Each is made only when it is asked for."""
    is_async = hasattr(source, "__aiter__")
    iterator = source.__aiter__() if is_async else iter(source)
    try:
        while True:
            if is_async:
                try:
                    item = await iterator.__anext__()
                except StopAsyncIteration:
                    return
            else:
                item = await run_plain(lambda: next(iterator, _END))
                if item is _END:
                    return
            yield item
    finally:
        await close(iterator)


async def close(iterator: Any) -> None:
    """Closes an iterator, if it can be closed.

    `close` of KServe's `AsyncMappingIterator` is an attribute that may be `None` or a coroutine function.
    """
    function = getattr(iterator, "aclose", None)
    if function is None:
        function = getattr(iterator, "close", None)
    closed = function() if callable(function) else None
    if inspect.isawaitable(closed):
        await closed
