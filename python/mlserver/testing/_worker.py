"""A service of the worker on a thread of this process, and the server's end of its socket."""

import asyncio
import mmap
import os
import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple, Type

from .._worker.connection import Connection
from .._worker.frames import SLOTS, FrameError, FrameKind, FrameReader, Header, write_frame
from .._worker.service import Service
from .._worker.threads import run_loop
from ..cancellation import cancellation_var
from ..metrics import registry as _registry
from ..model import MLModel
from ._errors import ModelFailed
from ._messages import Frame

#: How long to wait for the end of code that has been cancelled, in seconds. The server kills the worker after this time.
GRACE = 2.0


class Call:
    """An open call."""

    def __init__(self, worker: "Worker", id: int, is_stream: bool) -> None:
        self.id = id
        self._worker = worker
        self._is_stream = is_stream
        self._is_ended = False
        #: Filled on the reader's thread. `None` means that the service has ended.
        self.frames: queue.Queue[Optional[Frame]] = queue.Queue()

    def is_final(self, frame: Optional[Frame]) -> bool:
        """Returns whether a frame is the last one of this call."""
        if frame is None:
            return True
        is_part = frame.kind in (FrameKind.CREDIT, FrameKind.CHUNK)
        return not is_part and not (self._is_stream and frame.kind == FrameKind.ANSWER)

    def send(self, kind: FrameKind, head: Dict[str, Any], tail: Tuple[Any, ...] = ()) -> None:
        """Sends a frame of this call."""
        self._worker.send(kind, self.id, head, tail)

    def next(self, timeout: Optional[float] = None) -> Optional[Frame]:
        """Returns the next frame, or `None` if there will be none. Raises `queue.Empty` after `timeout` seconds."""
        frame = self.frames.get(timeout=timeout)
        self._is_ended = self.is_final(frame)
        return frame

    def final(
        self,
        error: Type[ModelFailed],
        timeout: Optional[float] = None,
        timeout_message: str = "the client's deadline has passed",
    ) -> Frame:
        """Returns the final frame. Raises `error` if it is an error, and with status 504 after `timeout` seconds."""
        try:
            frame = self.next(timeout)
        except queue.Empty:
            hung = "" if self.cancel() else f"The code still runs {GRACE:g} s after it was cancelled."
            raise error(504, timeout_message, hung) from None
        except BaseException:  # such as KeyboardInterrupt
            self.cancel()
            raise
        return self.check(frame, error)

    def replied(self, error: Type[ModelFailed], timeout: Optional[float] = None) -> Frame:
        """Returns the reply of a handler, of which all parts are joined. Raises `error` as `final` does."""
        end = None if timeout is None else time.monotonic() + timeout
        parts: List[Frame] = []
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.001)
            frame = self.final(error, left)
            if frame.kind != FrameKind.CHUNK:
                break
            parts.append(frame)
        if not parts:
            return frame
        return parts[0]._replace(tail=b"".join(bytes(part.tail) for part in parts))

    def check(self, frame: Optional[Frame], error: Type[ModelFailed]) -> Frame:
        """Returns a frame that is not an error."""
        if frame is None:
            raise error(503, "the worker has ended; its output contains the reason")
        if frame.kind == FrameKind.ERROR:
            raise error(frame.head["status"], frame.head["message"], frame.head.get("traceback", ""))
        return frame

    def cancel(self) -> bool:
        """Cancels the call if it has not ended, and returns whether it has ended in time."""
        end = time.monotonic() + GRACE
        if not self._is_ended:
            self.send(FrameKind.CANCEL, {})
        while not self._is_ended:
            try:
                self.next(max(end - time.monotonic(), 0.001))
            except queue.Empty:
                self._worker.is_hung = True
                return False
        return True


class Worker:
    """A service of the worker on a thread of this process, and the server's end of its socket."""

    service: Service

    def __init__(self, implementation: Optional[Type[MLModel]], inline: bool) -> None:
        self._implementation = implementation
        self._inline = inline
        #: The values of metrics, by name.
        self.observed: Dict[str, List[float]] = {}
        #: Whether a cancelled call has not ended in time.
        self.is_hung = False
        self._sending = threading.Lock()
        #: Guards the fields below.
        self._lock = threading.Lock()
        #: The open calls, by their slots.
        self._calls: Dict[int, Call] = {}
        self._last_id = SLOTS - 1
        self._is_lost = False
        self._socket, self._theirs = socket.socketpair()
        self._is_started = threading.Event()
        # Daemons, because code that never ends must not prevent the exit of the tests.
        self._threads = [
            threading.Thread(target=function, name=f"worker-{function.__name__}", daemon=True)
            for function in (self._run, self._read)
        ]
        for thread in self._threads:
            thread.start()
        self._is_started.wait()

    def call(self, kind: FrameKind, head: Dict[str, Any], tail: Tuple[Any, ...] = ()) -> Call:
        """Opens a call. Raises `FrameError` if it does not fit in a frame."""
        with self._lock:
            if len(self._calls) == SLOTS:
                raise RuntimeError(f"{SLOTS} calls are open, which is the limit of a worker")
            self._last_id += 1
            while self._last_id % SLOTS in self._calls:
                self._last_id += 1
            call = Call(self, self._last_id, kind == FrameKind.STREAM)
            self._calls[call.id % SLOTS] = call
            if self._is_lost:
                call.frames.put(None)
        try:
            call.send(kind, head, tail)
        except FrameError:
            with self._lock:
                del self._calls[call.id % SLOTS]
            raise
        return call

    def send(self, kind: FrameKind, id: int, head: Dict[str, Any], tail: Tuple[Any, ...] = ()) -> None:
        """Sends a frame."""
        parts, _size = write_frame(kind, id, head, tail)
        # If the service has ended, the call learns it from the reader.
        with self._sending, suppress(OSError):
            for part in parts:
                self._socket.sendall(part)

    def scrape(self) -> None:
        """Waits for all observations so far. Code that does not end may keep the service from sending them."""
        with suppress(queue.Empty):
            self.call(FrameKind.SCRAPE, {}).next(GRACE if self.is_hung else None)

    def stop(self) -> None:
        """Ends the service and its threads. Leaves threads whose code does not end."""
        if not self.is_hung:
            self.send(FrameKind.STOP, 0, {})
            self._threads[0].join()
        # Ends a service whose calls do not end.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(GRACE)
        self._threads[1].join()
        self._socket.close()
        _sinks.remove(self)

    def _run(self) -> None:
        try:
            run_loop(asyncio.new_event_loop(), self._serve())
        finally:
            # Also if the service has failed to start.
            self._is_started.set()
            self._theirs.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        process = os.getpid()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def lost() -> None:
            if os.getpid() != process:
                os._exit(1)  # a forked child has returned into the code of the worker
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end)

        connection = Connection(loop, self._theirs, lost)
        # Not closed explicitly, because code that does not end may still use it.
        page = mmap.mmap(-1, 8 * SLOTS)
        _sinks.before_service()
        self.service = Service(loop, connection, page, inline=self._inline, stopped=end)
        _sinks.add(self, connection)
        connection.open(self._receive)
        self._is_started.set()
        try:
            await ended
        finally:
            connection.close()

    def _receive(self, header: Header, head: Dict[str, Any], tail: Any) -> None:
        if header.kind == FrameKind.LOAD and self._implementation is not None:
            # Frames contain only its import path, and a class of a test has none.
            head["settings"]["implementation"] = self._implementation
        self.service.receive(header, head, tail)

    def _read(self) -> None:
        """Passes frames to their calls."""
        reader = FrameReader()
        with suppress(OSError):
            while True:
                received = self._socket.recv_into(reader.room())
                if not received:
                    break
                for header, head, tail in reader.filled(received):
                    self._pass(header.id, Frame(header.kind, head, tail))
        with self._lock:
            self._is_lost = True
            for call in self._calls.values():
                call.frames.put(None)

    def _pass(self, id: int, frame: Frame) -> None:
        if frame.kind == FrameKind.METRICS:
            for name, _description, _model, _version, value in frame.head["observed"]:
                self.observed.setdefault(name, []).append(value)
        elif frame.kind != FrameKind.YIELDED:
            with self._lock:
                call = self._calls[id % SLOTS]
                if call.is_final(frame):
                    del self._calls[id % SLOTS]
            call.frames.put(frame)


class _Sinks:
    """Passes the observations of metrics, which the whole process shares, to the workers that they belong to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: Dict[Worker, Connection] = {}
        self._before: Any = None
        self._is_registered = False

    def before_service(self) -> None:
        """Remembers the sink that a new service replaces."""
        with self._lock:
            if not self._workers:
                self._before = _registry._sink

    def add(self, worker: Worker, connection: Connection) -> None:
        """Adds a worker whose service has started."""
        with self._lock:
            self._workers[worker] = connection
            _registry.set_sink(self._observe)
            if not self._is_registered:
                self._is_registered = True
                os.register_at_fork(after_in_child=self._detach)

    def remove(self, worker: Worker) -> None:
        """Removes a worker that has stopped."""
        with self._lock:
            if self._workers.pop(worker, None) is not None and not self._workers:
                _registry.set_sink(self._before)

    def _observe(self, observation: Any) -> None:
        running = getattr(cancellation_var.get(), "service", None)
        workers = list(self._workers)
        for worker in workers:
            if worker.service is running:
                worker.service.observations.add(observation)
                return
        # A thread that the model has started.
        if workers:
            workers[-1].service.observations.add(observation)

    def _detach(self) -> None:
        """Keeps forked children from using the sockets."""
        for connection in self._workers.values():
            connection.detach()


_sinks = _Sinks()
