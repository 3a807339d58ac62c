"""Open calls: what each kind of call runs, and the one final frame that ends it."""

import asyncio
import inspect
import itertools
import threading
import traceback
from time import monotonic
from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Tuple

from .._blocking import is_async
from .._imports import folder_var
from .._payload import WireTensor, wire_outputs
from .._replies import Reply, ReplyInstead, StreamedReply
from .._tensor import TensorError
from .._worker_model import Asker
from ..cancellation import cancellation_var
from ..context import model_name_var, model_version_var
from ..errors import MLServerError
from ..logging import logger
from ..types import InferenceResponse
from ..types.dataplane import decode_on_demand
from .failures import describe
from .frames import Buffer, FrameError, FrameKind, Head, read_request, write_outputs
from .models import LoadedModel, load, unload
from .output import request_id_var
from .streams import Credit, Stream
from .threads import Result

if TYPE_CHECKING:
    from .service import Service
    from .threads import CallLoop


class Final(NamedTuple):
    """The content of a final frame."""

    kind: FrameKind
    head: Head = None
    tail: Tuple[Buffer, ...] = ()


class Call(Asker):
    """An open call. `run` ends it with exactly one final frame, whatever its code raises."""

    #: The model that is called; `None` for calls without a model.
    model: Optional[LoadedModel] = None
    task: "Optional[asyncio.Task[None]]" = None
    #: Whether the task has run its first step.
    has_begun = False
    #: Whether the final frame has been sent.
    is_ended = False
    #: Whether its code runs, or waits to run, on the model's threads.
    in_thread = False
    #: How many frames of its answer the server still takes; `None` for calls with one frame.
    credit: Optional[Credit] = None

    def __init__(self, service: "Service", id: int, head: Dict[str, Any], tail: Buffer = b"") -> None:
        self.raised = False
        self.id = id
        self.service = service
        self.head = head
        self.tail = tail
        #: The event loop that runs the task of this call.
        self.loop: CallLoop = service.loop
        #: What its code waits for from other models, by number.
        self.steps: Dict[int, Result] = {}

    async def execute(self) -> Final:
        """Runs the code of the call, and returns the content of the final frame."""
        raise NotImplementedError

    async def run(self) -> None:
        """Runs the call in a task."""
        self.has_begun = True
        loop = self.loop
        loop.not_begun -= 1
        cancellation_var.set(self)
        final: Optional[Final] = None
        try:
            if self.raised:
                raise asyncio.CancelledError
            final = await self.execute()
        except BaseException as error:
            # Also what ends programs, such as SystemExit: it ends only this call.
            final = self.failed(error)
        finally:
            self.end(final)
            loop.flush()

    def cancel(self) -> None:
        """Cancels the call. Called on the thread of the worker's own loop."""
        self.raised = True
        self.loop.post(self._cancel_task)

    def _cancel_task(self) -> None:
        # A task that is cancelled before its first step would end without a final frame; it checks `raised` instead.
        if self.task is not None and self.has_begun and not self.is_ended:
            self.task.cancel()

    def failed(self, error: BaseException) -> Final:
        """Returns the final frame for an exception."""
        return Final(FrameKind.ERROR, describe(error, self.raised))

    def end(self, final: Optional[Final]) -> None:
        """Sends the final frame, or an error if it cannot be sent."""
        try:
            self.send(final or self.failed(RuntimeError("the worker could not describe an exception")))
        except BaseException as error:
            self.send(self.failed(_cannot_be_sent(self.model, error)))
        finally:
            # In this order: a `pong` that reports the call as open is harmless, one that misses an unanswered call is not.
            self.is_ended = True
            self.service.forget(self)

    def send(self, frame: Final) -> None:
        """Sends a frame of this call, after the observations made so far."""
        kind, head, tail = frame
        service = self.service
        if service.observations.waiting:
            service.observations.flush()
        service.connection.send(kind, self.id, head, *tail)

    async def ask(self, model: str, head: Dict[str, Any], tail: Tuple[Buffer, ...]) -> Tuple[Dict[str, Any], Buffer]:
        number = next(_step_numbers)
        result = self.steps[number] = Result()
        try:
            self.service.connection.send(FrameKind.STEP, self.id, {"step": number, "model": model, **head}, *tail)
            self.service.connection.flush()
            head, answer = await result.wait(lambda: True)
        finally:
            self.steps.pop(number, None)
        if "error" in head:
            raise MLServerError(head["error"], head["status"])
        return head, answer

    def begin(self) -> None:
        """Records that user code for this call has begun. Safe to call from any thread."""
        self.service.begin(self.id)

    def enter_model(self, request: Optional[str]) -> LoadedModel:
        """Returns the model, and sets the context of its code."""
        model = self.model
        if model is None:
            raise FrameError(f"model {self.head.get('model')} is not loaded in this worker")
        model_name_var.set(model.name)
        model_version_var.set(model.version or "")
        request_id_var.set(request)
        folder_var.set(model.folder)
        return model


#: Tells the steps of calls apart. Counting is atomic.
_step_numbers = itertools.count(1)


class LoadCall(Call):
    """Loads a model."""

    async def execute(self) -> Final:
        service = self.service
        # One at a time: modules are imported for the whole process, and memory peaks add up.
        async with service.loading:
            self.begin()
            try:
                # One whose `load` has returned false, before it is tried again.
                await _unload(service, self.head["model"])
            except Exception:
                traceback.print_exc()
            loop = service.loop_for_new_model(self.head["settings"].get("name"))
            try:
                source = self.head.get("source")
                model, loaded = await loop.run(lambda: load(self.head["settings"], source, loop, service.inline))
            except BaseException:
                loop.stop()
                raise
            service.models[self.head["model"]] = model
        return Final(FrameKind.LOADED, loaded)


class UnloadCall(Call):
    """Unloads a model."""

    async def execute(self) -> Final:
        self.begin()
        number = self.head["model"]
        if self.service.will_stop(number):
            return Final(FrameKind.DONE)
        await _unload(self.service, number)
        return Final(FrameKind.DONE)


async def _unload(service: "Service", number: int) -> None:
    """Unloads a model, if the worker has it."""
    model = service.models.pop(number, None)
    if model is not None:
        try:
            await model.loop.run(lambda: unload(model))
        finally:
            model.loop.stop()


#: The answer of a plain function that has run longer than this, in seconds, is sent at once.
_QUICK_SECONDS = 0.0005


class PredictCall(Call):
    """Runs `predict`: a coroutine on an event loop, a plain function on the model's threads."""

    #: What the plain function has returned, if it must be awaited.
    _awaitable: Any = None
    #: For calls of plain functions: the thread that acquires it runs the call, or ends it as cancelled.
    _turn: Optional[threading.Lock] = None

    #: What it calls, and whether that is a coroutine function.
    _function: Callable[[Any], Any]
    _is_async: bool
    #: The types of results that need no check whether they must be awaited.
    _results: Tuple[type, ...] = (InferenceResponse,)

    def start(self, model: LoadedModel) -> None:
        """Starts the call where the model runs."""
        self.model = model
        self.loop = model.loop
        self._function, self._is_async = self._target(model)
        if self._is_async or self.service.inline:
            model.loop.post(model.loop.start, self)
        else:
            self._turn = threading.Lock()
            self.in_thread = True
            if model.threads.has_waiting:
                self.service.connection.expect_more()
            model.threads.submit(self._run_in_thread)

    async def execute(self) -> Final:
        self.enter_model(self._request_id())
        if self._awaitable is not None:
            return self._answer(await self._awaitable)
        request = self._read()
        self.begin()
        response = self._function(request)
        if self._is_async or inspect.isawaitable(response):
            response = await response
        return self._answer(response)

    def _run_in_thread(self) -> None:
        """Runs the call on the current thread, without a task."""
        if self._turn is None or not self._turn.acquire(False):
            return
        cancellation_var.set(self)
        final: Optional[Final] = None
        is_continued = False
        start = monotonic()
        try:
            self.enter_model(self._request_id())
            request = self._read()
            self.begin()
            response = self._function(request)
            is_continued = type(response) not in self._results and self._goes_on(response)
            if is_continued:
                self.loop.loop.call_soon_threadsafe(self.loop.start, self)
            else:
                final = self._answer(response)
        except BaseException as error:
            is_continued = False
            final = self.failed(error)
        finally:
            if not is_continued:
                self.end(final)
                self._flush_from_thread(monotonic() - start)

    def _flush_from_thread(self, seconds: float) -> None:
        """Sends the answer of a plain function, together with the next one if both are quick.

        This saves both sides most of their system calls, and Python a change of threads for each.
        """
        model, connection = self.model, self.service.connection
        if seconds < _QUICK_SECONDS and model is not None and model.threads.has_waiting:
            connection.flush_later()
        else:
            connection.flush()

    def _goes_on(self, response: Any) -> bool:
        """Returns whether a task has to end the call, with what the plain function has returned."""
        if not inspect.isawaitable(response):
            return False
        self._awaitable = response
        return True

    def cancel(self) -> None:
        super().cancel()
        if self._turn is not None and self._turn.acquire(False):
            self.end(self.failed(asyncio.CancelledError()))
            self.loop.flush()

    def _target(self, model: LoadedModel) -> Tuple[Callable[[Any], Any], bool]:
        return model.predict, model.predict_is_async

    def _request_id(self) -> Optional[str]:
        found: Optional[str] = self.head.get("id")
        return found

    def _read(self) -> Any:
        request = read_request(self.head, self.tail)
        if self.model is not None:
            decode_on_demand(request, self.model.settings)
        return request

    def _answer(self, response: Any) -> Final:
        return answer(self.model, response)


class RespondCall(PredictCall):
    """Runs a handler of KServe's V1 or of OpenAI's API, which gets the head of its frame and the body as they are."""

    _results = (Reply,)
    _streamed: Optional[StreamedReply] = None

    def start(self, model: LoadedModel) -> None:
        self.credit = Credit(self.head.get("credit", 1))
        super().start(model)

    async def execute(self) -> Final:
        self.enter_model(self._request_id())
        if self._streamed is not None:
            return await send_pieces(self, self._streamed)
        if self._awaitable is not None:
            response = await self._awaitable
        else:
            request = self._read()
            self.begin()
            response = self._function(request)
            if self._is_async or inspect.isawaitable(response):
                response = await response
        return await send_pieces(self, response) if isinstance(response, StreamedReply) else self._answer(response)

    def _goes_on(self, response: Any) -> bool:
        if isinstance(response, StreamedReply):
            self._streamed = response
            return True
        return super()._goes_on(response)

    def _target(self, model: LoadedModel) -> Tuple[Callable[[Any], Any], bool]:
        handler: Any = model.handlers[self.head["handler"]]
        return handler.respond, handler.is_async

    def _request_id(self) -> Optional[str]:
        return dict(self.head["headers"]).get("x-request-id")

    def _read(self) -> Any:
        return self.head, self.tail

    def _answer(self, response: Any) -> Final:
        return reply_frame(response)


def reply_frame(reply: Reply) -> Final:
    """Returns the final frame of a call that has a whole reply."""
    status, headers, body, usage = reply
    head: Dict[str, Any] = {"status": status, "headers": headers}
    if usage:
        head["usage"] = usage
    return Final(FrameKind.REPLY, head, (body,))


async def send_pieces(call: Call, reply: StreamedReply) -> Final:
    """Sends the pieces of a reply while they are made, each only once the server takes it. Returns the final frame."""
    credit = call.credit
    assert credit is not None
    if call.in_thread:
        # The pieces of a plain function are made between other calls of its thread: these need not wait for the last one.
        call.in_thread = False
        call.send(Final(FrameKind.YIELDED))
    head: Optional[Dict[str, Any]] = {"status": reply.status, "headers": reply.headers}
    pieces = reply.pieces
    try:
        while True:
            await credit.take()
            has_credit = True
            try:
                piece = await pieces.__anext__()
            except StopAsyncIteration:
                break
            except ReplyInstead as instead:
                return reply_frame(instead.reply)
            view = memoryview(piece)
            for start in range(0, len(view), _MAX_CHUNK):
                if not has_credit:
                    await credit.take()
                has_credit = False
                call.send(Final(FrameKind.CHUNK, head, (view[start : start + _MAX_CHUNK],)))
                head = None
            if has_credit:
                credit.grant(1)
            call.service.connection.flush()
    finally:
        await pieces.aclose()
    if head is not None:
        return Final(FrameKind.REPLY, head)
    usage = reply.usage()
    return Final(FrameKind.DONE, {"usage": usage} if usage else None)


#: The longest piece of a reply in one frame, in bytes.
_MAX_CHUNK = 64 << 10


class StreamCall(Call):
    """Runs `predict_stream`."""

    def __init__(self, service: "Service", id: int, head: Dict[str, Any]) -> None:
        super().__init__(service, id, head)
        self.stream = self.credit = Stream(head.get("credit", 1), self.take)

    def take(self, count: int) -> None:
        """Allows the server to send more requests."""
        self.service.connection.send(FrameKind.CREDIT, self.id, {"count": count})
        self.service.connection.flush()

    async def execute(self) -> Final:
        model = self.enter_model(self.head.get("request"))
        self.begin()
        answers = self.stream.answers(model)
        try:
            async for response in answers:
                self.send(answer(model, response))
                self.service.connection.flush()
        finally:
            await answers.aclose()
        return Final(FrameKind.END)


class HandlerCall(Call):
    """Runs a custom handler."""

    async def execute(self) -> Final:
        model = self.enter_model(dict(self.head.get("headers", ())).get("x-request-id"))
        handler: Any = model.handlers[self.head["handler"]]
        self.credit = Credit(self.head.get("credit", 1))
        reply = await handler.invoke(self.head, self.tail, self._run_function)
        return await send_pieces(self, reply) if isinstance(reply, StreamedReply) else reply_frame(reply)

    async def _run_function(self, function: Callable[..., Any], arguments: Dict[str, Any]) -> Any:
        """Runs a handler or one of its dependencies."""
        model = self.model
        assert model is not None

        def run() -> Any:
            self.begin()
            return function(**arguments)

        if not is_async(function) and not model.is_inline:
            self.in_thread = True
        return await model.run(function, run)


def answer(model: Optional[LoadedModel], response: Any) -> Final:
    """Returns the frame of a response."""
    if not isinstance(response, InferenceResponse):
        if response is None:
            raise MLServerError(f"Model '{_name(model)}' returned no predictions after inference", 500)
        raise TypeError(f"predict returned a {type(response).__qualname__}, expected an InferenceResponse")
    try:
        wired = wire_outputs(response)
        head, tail = write_outputs(response, wired, _name(model), None if model is None else model.version)
    except TensorError as error:
        raise _cannot_be_sent(model, error) from error
    if model is not None and not model.has_warned:
        for output in wired:
            if output.packed.elements is None:
                _warn(model, output)
                break
    return Final(FrameKind.ANSWER, head, tail)


def _warn(model: LoadedModel, output: WireTensor) -> None:
    """Logs that an output has no regular form, once for each model."""
    model.has_warned = True
    logger.warning(
        "The data of output '%s' of model '%s' does not suit its datatype and shape: %s. REST clients receive it as it is, and "
        "gRPC fails. This is logged once for each model.",
        output.name,
        model.name,
        output.packed.reason,
    )


def _cannot_be_sent(model: Optional[LoadedModel], error: BaseException) -> MLServerError:
    if not isinstance(error, (FrameError, TensorError)):
        return MLServerError(f"the answer cannot be sent: {type(error).__name__}", 500)
    return MLServerError(f"Model '{_name(model)}' returned a response that cannot be sent: {error}", 500)


def _name(model: Optional[LoadedModel]) -> str:
    return "" if model is None else model.name


__all__ = ["Call", "Final", "HandlerCall", "LoadCall", "PredictCall", "RespondCall", "StreamCall", "UnloadCall"]
