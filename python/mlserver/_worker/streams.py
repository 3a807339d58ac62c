"""A stream of requests on its way to `predict_stream`, and of answers on the way back, each at the pace of its reader."""

import asyncio
import inspect
from collections import deque
from typing import Any, AsyncGenerator, AsyncIterator, Awaitable, Callable, Deque

from .models import LoadedModel

_END = object()


class Stream:
    """What has arrived for one stream and what may be sent. It belongs to the loop's thread."""

    #: How many requests may wait for the model.
    ahead = 4

    def __init__(self, credit: int, take: Callable[[int], None]) -> None:
        """Lets `credit` answers leave; calls `take` when there is room for further requests."""
        self._credit = credit
        self._take = take
        self._waiting: Deque[Any] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, request: Any) -> None:
        """Takes a request that has arrived."""
        self._waiting.append(request)
        self._changed.set()

    def close(self) -> None:
        """Takes the news that no further request comes."""
        self._closed = True
        self._changed.set()

    def grant(self, count: int) -> None:
        """Lets `count` more answers leave."""
        self._credit += count
        self._changed.set()

    async def requests(self) -> AsyncIterator[Any]:
        """Yields the requests as they arrive."""
        while True:
            await self._until(lambda: bool(self._waiting) or self._closed)
            if not self._waiting:
                return
            request = self._waiting.popleft()
            self._take(1)
            yield request

    async def answers(
        self, model: LoadedModel, run_plain: Callable[[LoadedModel, Callable[[], Any]], Awaitable[Any]]
    ) -> AsyncGenerator[Any, None]:
        """Yields the answers of the model, each one asked for when it may leave."""
        source = model.instance.predict_stream(self.requests())
        if inspect.isawaitable(source):
            source = await source
        is_async = hasattr(source, "__aiter__")
        iterator = source.__aiter__() if is_async else iter(source)
        try:
            while True:
                await self._until(lambda: self._credit > 0)
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

    async def _until(self, condition: Callable[[], bool]) -> None:
        # Two wait for changes, the reader and the writer; each looks again whenever there is one.
        while not condition():
            self._changed.clear()
            await self._changed.wait()
