"""Streams of requests to `predict_stream` and of its answers, each limited to the pace of its reader."""

import asyncio
import inspect
from collections import deque
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Deque, Dict, List, Tuple

from .._replies import iterate
from ..types.dataplane import decode_on_demand
from .frames import Buffer, read_request
from .models import LoadedModel


class Credit:
    """How many frames the server still takes. Used only on the thread of the model's event loop."""

    def __init__(self, credit: int) -> None:
        self._credit = credit
        #: Those that wait for a change. No `asyncio.Event`, which CPython 3.9 and older bind to the event loop of the thread
        #: that creates it.
        self._waiting: List[asyncio.Future[None]] = []

    def grant(self, count: int) -> None:
        """Allows `count` more frames to be sent."""
        self._credit += count
        self._wake()

    async def take(self) -> None:
        """Waits until a frame may be sent, and counts it."""
        await self._wait_until(lambda: self._credit > 0)
        self._credit -= 1

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        # Each of those that wait checks its condition after every change.
        while not condition():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter


class Stream(Credit):
    """The queued requests and the credit of one stream."""

    #: How many requests may wait for the model.
    ahead = 4

    def __init__(self, credit: int, on_taken: Callable[[int], None]) -> None:
        """Allows `credit` answers to be sent; calls `on_taken` with the number of requests that the model has taken."""
        super().__init__(credit)
        self._on_taken = on_taken
        self._requests: Deque[Tuple[Dict[str, Any], Buffer]] = deque()
        self._closed = False

    def put(self, head: Dict[str, Any], tail: Buffer) -> None:
        """Queues a request."""
        self._requests.append((head, tail))
        self._wake()

    def close(self) -> None:
        """Marks the end of the requests."""
        self._closed = True
        self._wake()

    async def requests(self, model: LoadedModel) -> AsyncIterator[Any]:
        """Yields the requests as they arrive."""
        while True:
            await self._wait_until(lambda: bool(self._requests) or self._closed)
            if not self._requests:
                return
            request = read_request(*self._requests.popleft())
            self._on_taken(1)
            decode_on_demand(request, model.settings)
            yield request

    async def answers(self, model: LoadedModel) -> AsyncGenerator[Any, None]:
        """Yields the answers of the model. The next answer is computed only once it may be sent."""
        source = model.instance.predict_stream(self.requests(model))
        if inspect.isawaitable(source):
            source = await source
        answers = iterate(source, model.run_plain)
        try:
            while True:
                await self.take()
                try:
                    answer = await answers.__anext__()
                except StopAsyncIteration:
                    return
                yield answer
        finally:
            await answers.aclose()
