"""Executes the frames of the server: loads models, and runs their code."""

import asyncio
import inspect
import os
import struct
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, List, Optional

from .. import metrics
from .._tensor import TensorError
from ..cancellation import Cancellation, cancellation_var
from ..context import model_name_var, model_version_var
from ..errors import MLServerError
from ..types import InferenceResponse
from .frames import SLOTS, Buffer, FrameError, FrameKind, Head, Header, read_request, write_response
from .models import LoadedModel, load, unload
from .output import request_id_var
from .streams import Stream

if TYPE_CHECKING:
    import mmap

    from .connection import Connection

_ID = struct.Struct("<Q")

_WORKER_FOLDER = os.path.dirname(__file__)

#: Tracebacks are cut to this many characters; the innermost frames are at the end.
_MAX_TRACEBACK = 16 << 10


def _from_user_code(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Returns a traceback without the worker's own frames, or all of it if the worker itself failed."""
    found, current = trace, trace
    while current is not None:
        if os.path.dirname(current.tb_frame.f_code.co_filename) == _WORKER_FOLDER:
            found = current.tb_next
        current = current.tb_next
    return found or trace


class Call(Cancellation):
    """An open call, and whether it is cancelled."""

    __slots__ = ("id", "has_begun", "in_thread", "task", "stream")

    def __init__(self, id: int) -> None:
        self.raised = False
        self.id = id
        #: Whether its task has run its first step.
        self.has_begun = False
        #: Whether its code runs, or waits to run, on the model's own thread.
        self.in_thread = False
        self.task: Optional[asyncio.Task[None]] = None
        self.stream: Optional[Stream] = None


class Service:
    """Runs calls. Unless documented otherwise, methods must be called on the event loop's thread."""

    connection: "Connection"

    def __init__(
        self, loop: asyncio.AbstractEventLoop, page: "mmap.mmap", *, inline: bool, stopped: Callable[[], None]
    ) -> None:
        """Marks calls that have begun in `page`. If `inline` is true, plain functions run on the event loop's thread."""
        self._loop = loop
        self._page = page
        self._inline = inline
        self._stopped = stopped
        self._stopping = False
        self._models: Dict[int, LoadedModel] = {}
        self._calls: Dict[int, Call] = {}
        #: Calls that may still end with their first step.
        self._first_steps: List[Call] = []
        #: Number of calls whose tasks have not run their first step.
        self._not_begun = 0
        self._loading = asyncio.Lock()
        self._observed: List[Any] = []
        self._handlers: Dict[int, Callable[[Header, Dict[str, Any], Buffer], None]] = {
            FrameKind.LOAD: self._load,
            FrameKind.UNLOAD: self._unload,
            FrameKind.PREDICT: self._predict,
            FrameKind.STREAM: self._open_stream,
            FrameKind.CALL: self._call,
            FrameKind.ITEM: self._item,
            FrameKind.END: self._end,
            FrameKind.CREDIT: self._credit,
            FrameKind.CANCEL: self._cancel,
            FrameKind.PING: self._ping,
            FrameKind.STOP: self._stop,
            FrameKind.SCRAPE: self._scrape,
        }
        metrics.set_sink(self._observe)

    def receive(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        """Starts to execute a frame."""
        try:
            handler = self._handlers[header.kind]
        except KeyError:
            raise FrameError(f"the server sent a frame of unknown kind {header.kind}") from None
        handler(header, head, tail)

    # Frames

    def _ping(self, header: Header, _head: Dict[str, Any], tail: Buffer) -> None:
        self.connection.send(FrameKind.PONG, header.id, None, tail)

    def _scrape(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        from ..metrics.prometheus import families  # most models have no such metrics

        self.connection.send(FrameKind.EXPOSITION, header.id, {"families": families()})

    def _stop(self, _header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        self._stopping = True
        if not self._calls:
            self._stopped()

    def _cancel(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None:
            call.raised = True
            # A task that is cancelled before its first step would end without an answer; it checks the flag instead.
            if call.task is not None and call.has_begun:
                call.task.cancel()

    def _item(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None and call.stream is not None:
            call.stream.put(read_request(head, tail))

    def _end(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None and call.stream is not None:
            call.stream.close()

    def _credit(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None and call.stream is not None:
            call.stream.grant(head["count"])

    def _load(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        async def run(_call: Call) -> None:
            # One at a time: the import path belongs to the process, and memory peaks add up.
            async with self._loading:
                self._begin(header.id)
                model, loaded = await load(head["settings"], head.get("source"))
            self._models[head["model"]] = model
            self._finish(header.id, FrameKind.LOADED, loaded)

        self._open(header.id, run)

    def _unload(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        async def run(_call: Call) -> None:
            self._begin(header.id)
            model = self._models.pop(head["model"], None)
            if model is not None:
                await unload(model)
            self._finish(header.id, FrameKind.DONE)

        self._open(header.id, run)

    def _predict(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        async def run(call: Call) -> None:
            model = self._model(head)
            request = read_request(head, tail)
            request_id_var.set(request.id)
            if model.predict_is_async:
                self._begin(call.id)
                response = await model.instance.predict(request)
            else:
                response = await self._invoke(call, model, False, model.instance.predict, request)
            self._send_answer(call.id, model, response)

        self._open(header.id, run)

    def _open_stream(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        async def run(call: Call) -> None:
            model = self._model(head)
            request_id_var.set(head.get("request"))
            assert call.stream is not None
            self._begin(call.id)
            answers = call.stream.answers(model, self._run_plain)
            try:
                async for response in answers:
                    self._send_answer(call.id, model, response)
                    self.connection.flush()
            finally:
                await answers.aclose()
            self._finish(call.id, FrameKind.END)

        def take(count: int) -> None:
            self.connection.send(FrameKind.CREDIT, header.id, {"count": count})
            self.connection.flush()

        stream = Stream(head.get("credit", 1), take)
        self._open(header.id, run, stream)
        take(stream.ahead)

    def _call(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        async def run(call: Call) -> None:
            from .handlers import invoke  # most models have none

            model = self._model(head)
            request_id_var.set(dict(head.get("headers", ())).get("x-request-id"))
            handler = model.handlers[head["handler"]]

            async def run_function(function: Callable[..., Any], arguments: Dict[str, Any]) -> Any:
                is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
                return await self._invoke(call, model, is_async, function, **arguments)

            status, headers, body = await invoke(handler, head, tail, run_function)
            self._finish(call.id, FrameKind.REPLY, {"status": status, "headers": headers}, body)

        self._open(header.id, run)

    # Running

    def _model(self, head: Dict[str, Any]) -> LoadedModel:
        try:
            model = self._models[head["model"]]
        except KeyError:
            raise FrameError(f"model {head.get('model')} is not loaded in this worker") from None
        model_name_var.set(model.name)
        model_version_var.set(model.version or "")
        return model

    def _open(self, id: int, run: Callable[[Call], Awaitable[None]], stream: Optional[Stream] = None) -> None:
        call = self._calls[id] = Call(id)
        call.stream = stream
        self._not_begun += 1
        call.task = self._loop.create_task(self._run(call, run))
        if not self._first_steps:
            self._loop.call_soon(self._report_yields)
        self._first_steps.append(call)

    def _report_yields(self) -> None:
        """Sends `yielded` for calls that have not ended with their first step, and therefore wait for something."""
        first_steps, self._first_steps = self._first_steps, []
        for call in first_steps:
            if not call.has_begun:
                self._first_steps.append(call)
            elif call.id in self._calls and not call.in_thread:
                self.connection.send(FrameKind.YIELDED, call.id)
        if self._first_steps:
            self._loop.call_soon(self._report_yields)
        self.connection.flush()

    async def _run(self, call: Call, run: Callable[[Call], Awaitable[None]]) -> None:
        call.has_begun = True
        self._not_begun -= 1
        cancellation_var.set(call)
        try:
            if call.raised:
                raise asyncio.CancelledError
            await run(call)
        except asyncio.CancelledError:
            self._fail(call, "cancelled", 500, "the call was cancelled")
        except FrameError as error:
            self._fail(call, "request", 500, str(error))
        except MLServerError as error:
            self._fail(call, "mlserver", error.status_code, str(error), error)
        except Exception as error:
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            self._fail(call, "model", 500, f"{name}: {error}", error)
        finally:
            del self._calls[call.id]
            if not self._not_begun:
                # Calls that arrived together are answered together: this saves both sides most of their system calls. It
                # does not delay answers much, because the server sends several calls together only if they are quick.
                self.connection.flush()
            if self._stopping and not self._calls:
                self._stopped()

    def _fail(self, call: Call, kind: str, status: Any, message: str, error: Optional[BaseException] = None) -> None:
        head = {"kind": kind, "status": status if type(status) is int else 500, "message": message}
        if error is not None:
            lines = traceback.format_exception(type(error), error, _from_user_code(error.__traceback__))
            head["traceback"] = "".join(lines)[-_MAX_TRACEBACK:]
        self._finish(call.id, FrameKind.ERROR, head)

    def _begin(self, id: int) -> None:
        """Records in the page that user code for this call has begun. Safe to call from any thread."""
        _ID.pack_into(self._page, _ID.size * (id % SLOTS), id)

    async def _invoke(self, call: Call, model: LoadedModel, is_async: bool, function: Any, *args: Any, **named: Any) -> Any:
        """Calls a function of the model: a coroutine on the event loop, a plain function on the model's thread."""
        if is_async or self._inline:
            self._begin(call.id)
            result = function(*args, **named)
        else:
            begin = self._begin

            def run() -> Any:
                begin(call.id)
                return function(*args, **named)

            call.in_thread = True
            result = await self._run_plain(model, run)
        return await result if inspect.isawaitable(result) else result

    async def _run_plain(self, model: LoadedModel, function: Callable[[], Any]) -> Any:
        """Runs a plain function on the model's own thread, or on the event loop's thread if `inline` is true."""
        if self._inline:
            return function()
        if model.thread is None:
            model.thread = ThreadPoolExecutor(1, f"{model.name}")
        submitted = model.thread.submit(copy_context().run, function)
        future = asyncio.wrap_future(submitted)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                # A call that waits for the thread can be cancelled; a running one ends only when its code has ended.
                if submitted.cancel() or future.done():
                    raise

    def _send_answer(self, id: int, model: LoadedModel, response: Any) -> None:
        if not isinstance(response, InferenceResponse):
            if response is None:
                raise MLServerError(f"Model '{model.name}' returned no predictions after inference", 500)
            raise TypeError(f"predict returned a {type(response).__qualname__}, expected an InferenceResponse")
        try:
            head, tail = write_response(response)
        except TensorError as error:
            raise MLServerError(f"Model '{model.name}' returned a response that cannot be sent: {error}", 500) from error
        self._finish(id, FrameKind.ANSWER, head, *tail)

    # Metrics

    def _observe(self, observation: Any) -> None:
        """Records an observation. Called from any thread."""
        labels = observation.labels
        self._observed.append(
            (observation.name, observation.description, labels["model_name"], labels["model_version"], observation.value)
        )

    def _finish(self, id: int, kind: FrameKind, head: Head = None, *tail: Buffer) -> None:
        """Sends the final frame of a call, or an answer of a stream, after the observations made so far."""
        observed = self._observed
        if observed:
            count = len(observed)
            self.connection.send(FrameKind.METRICS, 0, {"observed": observed[:count]})
            del observed[:count]
        self.connection.send(kind, id, head, *tail)
