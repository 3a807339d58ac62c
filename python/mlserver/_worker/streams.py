"""Streams of requests to `predict_stream` and of its answers, each limited to the pace of its reader."""

import asyncio
import inspect
from collections import deque
from typing import Any, AsyncGenerator, AsyncIterator, Awaitable, Callable, Deque

from .models import LoadedModel

_END = object()


class Stream:
    """The queued requests and the credit of one stream. Used only on the event loop's thread."""

    #: How many requests may wait for the model.
    ahead = 4

    def __init__(self, credit: int, on_taken: Callable[[int], None]) -> None:
        """Allows `credit` answers to be sent; calls `on_taken` with the number of requests that the model has taken."""
        self._credit = credit
        self._on_taken = on_taken
        self._requests: Deque[Any] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, request: Any) -> None:
        """Queues a request."""
        self._requests.append(request)
        self._changed.set()

    def close(self) -> None:
        """Marks the end of the requests."""
        self._closed = True
        self._changed.set()

    def grant(self, count: int) -> None:
        """Allows `count` more answers to be sent."""
        self._credit += count
        self._changed.set()

    async def requests(self) -> AsyncIterator[Any]:
        """Yields the requests as they arrive."""
        while True:
            await self._wait_until(lambda: bool(self._requests) or self._closed)
            if not self._requests:
                return
            request = self._requests.popleft()
            self._on_taken(1)
            yield request

    async def answers(
        self, model: LoadedModel, run_plain: Callable[[LoadedModel, Callable[[], Any]], Awaitable[Any]]
    ) -> AsyncGenerator[Any, None]:
        """Yields the answers of the model. The next answer is computed only once it may be sent."""
        source = model.instance.predict_stream(self.requests())
        if inspect.isawaitable(source):
            source = await source
        is_async = hasattr(source, "__aiter__")
        iterator = source.__aiter__() if is_async else iter(source)
        try:
            while True:
                await self._wait_until(lambda: self._credit > 0)
                self._credit -= 1
                try:
                    if is_async:
                        answer = await iterator.__anext__()
                    else:
                        answer = await run_plain(model, lambda: next(iterator, _END))
                except StopAsyncIteration:
                    return
                if answer is _END:
                    return
                yield answer
        finally:
            if is_async and hasattr(iterator, "aclose"):
                await iterator.aclose()
            elif hasattr(iterator, "close"):
                iterator.close()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        # Both the reader and the writer wait for changes; each checks its condition after every change.
        while not condition():
            self._changed.clear()
            await self._changed.wait()
