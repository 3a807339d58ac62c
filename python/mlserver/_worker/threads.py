"""Runs user code on threads and event loops, and passes its results between them."""

import asyncio
import sys
import threading
import traceback
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, List, Optional, Set, Tuple

from .frames import FrameKind
from .signals import serve_signals

if TYPE_CHECKING:
    from .calls import Call
    from .connection import Connection

#: Whether tasks can run their first step when they are created. This saves a pass of the event loop for each call.
_EAGER = sys.version_info >= (3, 12)


class Result:
    """The result of code on another thread, for a coroutine that waits for it.

    Exceptions are passed as values: futures refuse `StopIteration`, and treat `CancelledError` as a cancellation.
    """

    __slots__ = ("_loop", "_waiter", "_is_done", "_value", "_error")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: Optional[asyncio.Future[None]] = None
        self._is_done = False
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def set(self, value: Any, error: Optional[BaseException] = None) -> None:
        """Ends the waiting. Safe to call from any thread."""
        self._value, self._error = value, error
        self._is_done = True
        with suppress(RuntimeError):  # the waiting event loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, withdraw: Callable[[], bool]) -> Any:
        """Returns the result, or raises the exception.

        If the waiting task is cancelled, calls `withdraw`. If that returns false, waits on, because the code is running.
        """
        while not self._is_done:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                if withdraw():
                    raise
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._value
        finally:
            del error


class ModelThreads:
    """The threads for the plain functions of one model, usually one. They start with the first function."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self._name = name
        self._functions: SimpleQueue[Optional[Tuple[Context, Callable[[], None]]]] = SimpleQueue()
        self._threads: List[threading.Thread] = []
        self._is_stopped = False

    def submit(self, function: Callable[[], None]) -> None:
        """Runs a function, which must not raise, in a copy of the current context. Called on the model's event loop."""
        self._functions.put((copy_context(), function))
        if not self._threads or self._is_stopped:
            # A call may still need the threads of a model that is being unloaded.
            self._start(1 if self._threads else self.count)

    @property
    def has_waiting(self) -> bool:
        """Whether a function waits for a thread."""
        return not self._functions.empty()

    def stop(self) -> None:
        """Ends the threads once they have run the functions that were submitted before."""
        self._is_stopped = True
        for _ in self._threads:
            self._functions.put(None)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Runs a function, and returns its result. If the task is cancelled, a running function is awaited first."""
        result = Result()
        # The thread that acquires it either runs the function or withdraws it.
        turn = threading.Lock()

        def run() -> None:
            if not turn.acquire(False):
                return
            try:
                value = function()
            except BaseException as error:
                result.set(None, error)
            else:
                result.set(value)

        self.submit(run)
        return await result.wait(lambda: turn.acquire(False))

    def _start(self, count: int) -> None:
        for _ in range(count):
            name = self._name if count == 1 else f"{self._name}-{len(self._threads)}"
            # Open calls keep the worker alive. A daemon, because a call that never ends must not prevent its exit.
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            submitted = self._functions.get()
            if submitted is None:
                return
            context, function = submitted
            try:
                context.run(function)
            except BaseException:  # a bug of the worker; the other calls still need the thread
                traceback.print_exc()
            # Frees the call while the thread waits for the next.
            del submitted, context, function


class CallLoop:
    """An event loop that runs calls: the worker's own. Unless documented otherwise, call methods on the loop's thread."""

    is_own = False

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: "Connection") -> None:
        self.loop = loop
        self._connection = connection
        #: Calls that may still end with their first step.
        self._first_steps: List[Call] = []
        #: Number of calls whose tasks have not run their first step.
        self.not_begun = 0

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function on this loop. Called on the thread of the worker's own loop."""
        function(*args)

    def start(self, call: "Call") -> None:
        """Runs a call in a task."""
        self.not_begun += 1
        if _EAGER:
            call.task = asyncio.Task(call.run(), loop=self.loop, eager_start=True)  # type: ignore[call-arg]
            self._report_yield(call)
            return
        call.task = self.loop.create_task(call.run())
        if not self._first_steps:
            self.loop.call_soon(self._report_yields)
        self._first_steps.append(call)

    def _report_yield(self, call: "Call") -> None:
        """Sends `yielded` for a call that has not ended with its first step, and therefore waits for something."""
        if not call.is_ended and not call.in_thread:
            self._connection.send(FrameKind.YIELDED, call.id)
            self.flush()

    def _report_yields(self) -> None:
        first_steps, self._first_steps = self._first_steps, []
        for call in first_steps:
            if call.has_begun:
                self._report_yield(call)
            else:
                self._first_steps.append(call)
        if self._first_steps:
            self.loop.call_soon(self._report_yields)

    def flush(self) -> None:
        """Sends what calls have answered, unless more calls have arrived together with them.

        Such calls are answered together: this saves both sides most of their system calls. It does not delay answers much,
        because the server sends several calls together only if they are quick.
        """
        if not self.not_begun and not self._connection.is_reading:
            self._connection.flush()

    async def run(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Awaits a function on this loop. Called on the worker's own loop."""
        return await function()

    def stop(self) -> None:
        """Does nothing: the worker ends its own loop."""


class OwnLoop(CallLoop):
    """An event loop of one model, on a thread of its own, so that the model's code does not delay the calls of others."""

    is_own = True

    def __init__(self, name: str, connection: "Connection") -> None:
        super().__init__(asyncio.new_event_loop(), connection)
        serve_signals(self.loop)
        #: The tasks of open calls.
        self._open: Set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[None] = self.loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        self.loop.call_soon_threadsafe(function, *args)

    def start(self, call: "Call") -> None:
        super().start(call)
        if not call.is_ended and call.task is not None:
            self._open.add(call.task)
            call.task.add_done_callback(self._open.discard)

    def flush(self) -> None:
        if not self.not_begun:
            self._connection.flush()

    async def run(self, function: Callable[[], Awaitable[Any]]) -> Any:
        result = Result()
        context = copy_context()
        tasks: List[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                value = await function()
            except BaseException as error:
                result.set(None, error)
            else:
                result.set(value)

        def cancel() -> bool:
            # The result is awaited: it comes when the code has ended.
            self.post(lambda: tasks[0].cancel())
            return False

        self.post(lambda: tasks.append(context.run(self.loop.create_task, run())))
        return await result.wait(cancel)

    def stop(self) -> None:
        """Ends the loop and its thread once the open calls have ended."""
        self.post(lambda: None if self._end.done() else self._end.set_result(None))

    def _run(self) -> None:
        try:
            run_loop(self.loop, self._until_stopped())
        except BaseException:  # a bug of the worker
            traceback.print_exc()

    async def _until_stopped(self) -> None:
        await until_done(self._end)
        while self._open:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(list(self._open))


async def until_done(future: "asyncio.Future[Any]") -> None:
    """Waits for a future of the worker, also if a model cancels all tasks of the loop."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


def run_loop(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end, closes the loop, and returns the result.

    Unlike `asyncio.run`, goes on if a task or callback of user code stops the loop, or raises `SystemExit` or
    `KeyboardInterrupt`.
    """
    asyncio.set_event_loop(loop)
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    try:
        while not task.done():
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # The task has stored it, and raises it where it is awaited.
                traceback.print_exc()
        return task.result()
    finally:
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    try:
        with suppress(SystemExit, KeyboardInterrupt):
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


__all__ = ["CallLoop", "ModelThreads", "OwnLoop", "Result", "run_loop", "until_done"]
