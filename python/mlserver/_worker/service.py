"""Executes the frames of the server: opens calls, and passes them what concerns them."""

import asyncio
import struct
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from .. import metrics
from .._worker_model import WorkerModel
from .calls import Call, HandlerCall, LoadCall, PredictCall, RespondCall, StreamCall, UnloadCall
from .connection import Connection
from .frames import SLOTS, Buffer, FrameError, FrameKind, Header
from .models import LoadedModel, unload
from .observations import Observations
from .threads import CallLoop, OwnLoop

if TYPE_CHECKING:
    import mmap

_ID = struct.Struct("<Q")


class Service:
    """Runs calls. Unless documented otherwise, methods must be called on the event loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        page: "mmap.mmap",
        *,
        inline: bool,
        stopped: Callable[[], None],
    ) -> None:
        """Marks calls that have begun in `page`. If `inline` is true, all code runs on the event loop's thread."""
        self.connection = connection
        self.inline = inline
        self.loop = CallLoop(loop, connection)
        self.loading = asyncio.Lock()
        self.models: Dict[int, LoadedModel] = {}
        self.observations = Observations(connection)
        self._page = page
        self._stopped = stopped
        self._stopping = False
        self._stopper: Optional[asyncio.Task[None]] = None
        #: The calls whose final frames have not been sent.
        self._calls: Dict[int, Call] = {}
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
            FrameKind.STEP_ANSWER: self._step_answer,
        }
        metrics.set_sink(self.observations.add)

    def receive(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        """Starts to execute a frame."""
        try:
            handler = self._handlers[header.kind]
        except KeyError:
            raise FrameError(f"the server sent a frame of unknown kind {header.kind}") from None
        handler(header, head, tail)

    def begin(self, id: int) -> None:
        """Records in the page that user code for a call has begun. Safe to call from any thread."""
        _ID.pack_into(self._page, _ID.size * (id % SLOTS), id)

    def forget(self, call: Call) -> None:
        """Removes a call that has ended. Safe to call from any thread."""
        del self._calls[call.id]
        if self._stopping and not self._calls:
            self.loop.loop.call_soon_threadsafe(self._stop_models)

    def loop_for_new_model(self, name: Any) -> CallLoop:
        """Returns the worker's own loop for its first model.

        Another model gets a loop of its own, because its `load` would delay the calls of those that are loaded already.
        """
        if self.inline or not self.models:
            return self.loop
        return OwnLoop(str(name), self.connection)

    # Frames

    def _load(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        self._open(LoadCall(self, header.id, head))

    def _unload(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        self._open(UnloadCall(self, header.id, head))

    def _predict(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        call = self._calls[header.id] = PredictCall(self, header.id, head, tail)
        model = self.models.get(head.get("model", -1))
        if model is None:
            self.loop.start(call)  # which fails
        else:
            call.start(model)

    def _open_stream(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        call = StreamCall(self, header.id, head)
        call.take(call.stream.ahead)
        self._open(call, head.get("model", -1))

    def _call(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        model = self.models.get(head.get("model", -1))
        handler = None if model is None else model.handlers.get(head.get("handler", ""))
        if model is not None and handler is not None and (handler.v1 or handler.openai):
            call = self._calls[header.id] = RespondCall(self, header.id, head, tail)
            call.start(model)
        else:
            self._open(HandlerCall(self, header.id, head, tail), head.get("model", -1))

    def _open(self, call: Call, model: int = -1) -> None:
        self._calls[call.id] = call
        call.model = self.models.get(model)
        if call.model is not None:
            call.loop = call.model.loop
        call.loop.post(call.loop.start, call)

    def _item(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if isinstance(call, StreamCall):
            call.loop.post(call.stream.put, head, tail)

    def _end(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if isinstance(call, StreamCall):
            call.loop.post(call.stream.close)

    def _credit(self, header: Header, head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None and call.credit is not None:
            call.loop.post(call.credit.grant, head["count"])

    def _cancel(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        call = self._calls.get(header.id)
        if call is not None:
            call.cancel()

    def _ping(self, header: Header, _head: Dict[str, Any], tail: Buffer) -> None:
        self.connection.send(FrameKind.PONG, header.id, {"open": list(self._calls)}, tail)

    def _scrape(self, header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        from ..metrics.prometheus import families  # most models have no such metrics

        # Threads of user code may observe values although there are no calls.
        self.observations.flush()
        try:
            self.connection.send(FrameKind.EXPOSITION, header.id, {"families": families()})
        except BaseException:
            # A collector of user code has failed, or its metrics are longer than a frame.
            traceback.print_exc()
            self.connection.send(FrameKind.EXPOSITION, header.id, {"families": []})

    def _step_answer(self, header: Header, head: Dict[str, Any], tail: Buffer) -> None:
        call = self._calls.get(header.id)
        result = None if call is None else call.steps.get(head["step"])
        if result is not None:
            result.set((head, tail))

    def _stop(self, _header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
        self._stopping = True
        if not self._calls:
            self._stop_models()

    def _stop_models(self) -> None:
        """Ends the worker once the models of other servers are stopped, as those servers do. Called when no call is open."""
        if self._stopper is None:
            self._stopper = self.loop.loop.create_task(self._stop_each())

    def will_stop(self, number: int) -> bool:
        """Returns whether the worker is stopping, and then stops a model when it is its turn: one of another server."""
        model = self.models.get(number)
        return self._stopping and model is not None and issubclass(type(model.instance), WorkerModel)

    async def _stop_each(self) -> None:
        adapted = [(number, model) for number, model in self.models.items() if self.will_stop(number)]
        # They may have been loaded in any order.
        for number, model in sorted(adapted, key=lambda entry: entry[1].instance.position):
            del self.models[number]
            try:
                await model.loop.run(lambda model=model: unload(model))  # type: ignore[misc]
            except BaseException:
                traceback.print_exc()
        self._stopped()
