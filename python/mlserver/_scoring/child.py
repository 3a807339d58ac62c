"""A process `mlserver score`, and the calls to it.

Threads share a child. No thread is there only to receive frames: of the threads that wait for an answer, one receives for all
of them, so that a call costs no switch between threads. If that thread is interrupted, the child is ended, because a frame may
be lost.
"""

import array
import collections
import contextlib
import os
import select
import socket
import subprocess
import threading
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._worker.frames import PROTOCOL, Buffer, FrameError, FrameKind, FrameReader, write_frame
from ..errors import InferenceError, ScoringError
from ..version import __version__
from .memory import MemoryFile, MemoryRegion

__all__ = ["Call", "Child", "ChildArguments"]

#: How many lines of the log are kept for errors, and how much of each, in characters.
_LOG_LINES = 20
_LOG_WIDTH = 1000

#: The least severe records of the child's log.
_LOG_LEVEL = "warning"

#: How long a child may take to exit after its socket has been closed, in seconds. Then it is killed.
_EXIT_SECONDS = 5.0
#: How long to wait for the rest of its log after it has ended, in seconds.
_LOG_SECONDS = 1.0

#: Frames below this size are sent with one call of the system, in bytes.
_JOINED_BYTES = 64 << 10
#: How long to wait for room in the socket before looking whether another thread receives, in milliseconds.
_POLL_MILLISECONDS = 50

#: The most batches of a call in flight. More regions of the memory file would be too small for a batch.
_MOST_IN_FLIGHT = 16

#: The number of the only model of a child.
_MODEL = 0


class ChildArguments(NamedTuple):
    """What a child is started with."""

    executable: str
    #: A folder, a model file or a URI.
    location: str
    model_name: Optional[str]
    version: Optional[str]
    #: How many predictions run at a time.
    threads: int
    #: After how many seconds without a call the child is ended.
    idle: float


class Call:
    """A call whose final frame may not have arrived."""

    __slots__ = ("head", "id", "is_abandoned", "kind", "region", "tail")

    def __init__(self, id: int, region: Optional[MemoryRegion]) -> None:
        self.id = id
        #: Its part of the memory file, which is given back after the final frame at the earliest.
        self.region = region
        #: Whether nobody waits for it.
        self.is_abandoned = False
        #: Kind, head and tail of the final frame; the kind is 0 until it has arrived.
        self.kind = 0
        self.head: Dict[str, Any] = {}
        self.tail: Buffer = b""


class Child:
    """A running child that has loaded its model."""

    def __init__(self, arguments: ChildArguments, spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
        """Starts the child and has it load the model.

        `spawn` has the signature of `subprocess.Popen`, and calls it on a thread that lives as long as this process: the kernel
        kills the child when the thread that has started it ends. Raises `ScoringError`.
        """
        self.arguments = arguments
        #: Whether the child ended before it received all of the only open call, so that another child can answer it.
        self.ended_before_call = False
        #: What `loaded` says about the model.
        self.model: Dict[str, Any] = {}
        #: What callers have made of `model`, so that they do it once.
        self.known: Any = None
        self._changed = threading.Condition()
        self._send_lock = threading.Lock()
        self._calls: Dict[int, Call] = {}
        self._last_id = 0
        self._is_receiving = False
        self._failure: Optional[str] = None
        self._reader = FrameReader()
        self._log: Deque[str] = collections.deque(maxlen=_LOG_LINES)
        #: How many batches of one call are sent before its first answer is read.
        self.in_flight = min(arguments.threads + 1, _MOST_IN_FLIGHT)
        self._memory = _memory_file(self.in_flight)
        #: Set when the process has ended and `_failure` says how.
        self._is_gone = threading.Event()
        self._socket, theirs = socket.socketpair()
        # Not a file of Python's: a forked process cannot close one that a thread of this process reads.
        self._log_pipe, log = os.pipe()
        command = [arguments.executable, "score"]
        try:
            with theirs:
                self._process = spawn(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=log)
        except BaseException as error:
            self._socket.close()
            os.close(self._log_pipe)
            self._close_memory()
            if isinstance(error, OSError):
                raise ScoringError(f"cannot run `{arguments.executable} score`: {error}") from error
            raise
        finally:
            os.close(log)
        self._log_thread = threading.Thread(target=self._read_log, name="mlserver-scoring-log", daemon=True)
        self._log_thread.start()
        try:
            self._open()
        except BaseException:
            self.end()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether calls can be made: it has not failed, and has not ended since the last call."""
        return self._failure is None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def start(self, head: Dict[str, Any], tail: Sequence[Buffer], region: Optional[MemoryRegion]) -> Call:
        """Sends a prediction, whose answer `finish` returns. Its region is given back with `release`.

        Raises `ScoringError` if the child has ended.
        """
        return self._send_call(FrameKind.PREDICT, {"model": _MODEL, **head}, tail, region)

    def finish(self, call: Call) -> Tuple[Dict[str, Any], Buffer]:
        """Waits for a call, and returns head and tail of its answer. `release` it afterwards.

        Raises `InferenceError` with the message of the server, and `ScoringError` if the child has ended.
        """
        try:
            self._wait(lambda: call.kind != 0)
        except BaseException:
            self.abandon(call)
            raise
        if call.kind == FrameKind.ERROR:
            self.release(call)
            error = InferenceError(str(call.head.get("message", "")))
            error.status_code = call.head.get("status", 500)
            raise error
        return call.head, call.tail

    def release(self, call: Call) -> None:
        """Gives back the region of a call, whose answer has been copied."""
        with self._changed:
            self._give_back(call)

    def abandon(self, call: Call) -> None:
        """Cancels a call that nobody waits for. The final frame gives back its region."""
        with self._changed:
            if self._failure is not None or call.kind != 0:
                self._give_back(call)
                return
            call.is_abandoned = True
        with contextlib.suppress(OSError):
            self._send(write_frame(FrameKind.CANCEL, call.id)[0])

    def can_hold(self, needed: int) -> bool:
        """Reports whether a region of the memory file can have so many bytes."""
        return self._memory is not None and needed <= self._memory.largest

    def give_back(self, region: MemoryRegion) -> None:
        """Gives back a region that no call has."""
        with self._changed:
            if self._memory is not None:
                self._memory.give_back(region)
                self._changed.notify_all()

    def take_region(self, needed: int, wait: bool) -> Optional[MemoryRegion]:
        """Returns a region of the memory file with at least `needed` bytes.

        Returns `None` if there is no such file, if `needed` exceeds its limit, and, unless `wait` is true, if other calls have
        the regions. Callers that wait must not have one, since threads would wait for each other.
        """
        memory = self._memory
        if memory is None or needed > memory.largest:
            return None
        with self._changed:
            region = memory.take(needed)
        if region is not None or not wait:
            return region
        found: List[MemoryRegion] = []

        def take() -> bool:
            assert memory is not None
            taken = memory.take(needed)
            if taken is not None:
                found.append(taken)
            return taken is not None

        # The threads that wait for the other calls receive their frames. Only for abandoned calls nobody does.
        self._wait(take, lambda: any(call.is_abandoned for call in self._calls.values()))
        return found[0]

    def end(self) -> None:
        """Ends the process, and waits until it has ended. Calls that are open fail."""
        self._fail("it was ended by this process")

    def forget(self) -> None:
        """Closes the descriptors in a process that was forked from the one whose child this is."""
        self._failure = "it is the child of another process"
        self._socket.close()
        self._close_memory()
        with contextlib.suppress(OSError):
            os.close(self._log_pipe)
        self._process.returncode = 0  # otherwise `Popen` waits for it

    def _open(self) -> None:
        hello: Dict[str, Any] = {"protocol": PROTOCOL, "worker": "scoring", "parent": os.getpid()}
        hello.update(threads=self.arguments.threads, memory_file=self._memory is not None, log_level=_LOG_LEVEL)
        buffers, _ = write_frame(FrameKind.HELLO, 0, hello)
        descriptors = []
        if self._memory is not None:
            descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._memory.descriptor]))]
        try:
            self._socket.sendmsg(buffers, descriptors)
        except OSError as error:
            self._fail(str(error))
            raise self._ended() from None
        ready = self._calls[0] = Call(0, None)
        self._wait(lambda: ready.kind != 0)
        found = ready.head.get("version")
        # Executables of a release name their commit after the version: `1.8.0 (3d3027564)`.
        if str(found).partition(" ")[0] != __version__:
            self._fail("its version is another one")
            raise ScoringError(
                f"`{self.arguments.executable}` has version {found or 'unknown'}, but the package `mlserver` in this Python"
                f" has {__version__}: install the same version of both"
            )
        load: Dict[str, Any] = {"model": _MODEL, "location": self.arguments.location}
        load.update(name=self.arguments.model_name, version=self.arguments.version)
        loading = self._send_call(FrameKind.LOAD, load, (), None)
        self._wait(lambda: loading.kind != 0)
        if loading.kind != FrameKind.LOADED:
            raise ScoringError(str(loading.head.get("message", "the model cannot be loaded")))
        self.model = loading.head

    def _send_call(
        self, kind: int, head: Dict[str, Any], tail: Sequence[Buffer], region: Optional[MemoryRegion]
    ) -> Call:
        with self._changed:
            has_failed = self._failure is not None
            if not has_failed:
                self._last_id += 1
                call = self._calls[self._last_id] = Call(self._last_id, region)
        if has_failed:
            raise self._ended()
        try:
            buffers, _ = write_frame(kind, call.id, head, tuple(tail))
        except FrameError as error:
            with self._changed:
                del self._calls[call.id]
                self._give_back(call)
            raise InferenceError(str(error)) from None
        try:
            self._send(buffers)
        except (OSError, FrameError) as error:
            self.ended_before_call = self._calls.keys() == {call.id}
            self._fail(str(error))
            raise self._ended() from None
        except BaseException:
            self._fail("a call was interrupted while it was sent")
            raise
        return call

    def _send(self, buffers: List[Buffer]) -> None:
        if sum(map(len, buffers)) < _JOINED_BYTES:
            buffers = [b"".join(buffers)]
        with self._send_lock:
            for buffer in buffers:
                view = memoryview(buffer)
                while view:
                    try:
                        view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
                    except BlockingIOError:
                        self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Waits until more can be sent, or for a moment.

        The child may wait, too, until a part of its answer has been received. So this thread receives, unless another one does.
        """
        with self._changed:
            may_receive = not self._is_receiving and self._failure is None
            self._is_receiving = self._is_receiving or may_receive
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT | (select.POLLIN if may_receive else 0))
            events = poll.poll(_POLL_MILLISECONDS)
            if may_receive and any(event & select.POLLIN for _, event in events):
                frames = self._receive()
                with self._changed:
                    for frame in frames:
                        self._finish(*frame)
        finally:
            if may_receive:
                with self._changed:
                    self._is_receiving = False
                    self._changed.notify_all()

    def _wait(self, is_done: Callable[[], bool], may_receive: Callable[[], bool] = lambda: True) -> None:
        """Waits until `is_done`. Receives frames if no other thread does, and if it `may_receive`.

        Both functions are called with the lock.
        """
        changed = self._changed
        while True:
            with changed:
                while not is_done():
                    if self._failure is not None or (not self._is_receiving and may_receive()):
                        break
                    changed.wait()
                else:
                    return
                has_failed = self._failure is not None
                if not has_failed:
                    self._is_receiving = True
            if has_failed:
                raise self._ended()
            try:
                frames = self._receive()
            except (OSError, FrameError) as error:
                # The kernel says so only if it has closed a connection with bytes that the child has not read.
                if isinstance(error, ConnectionResetError):
                    self.ended_before_call = len(self._calls) == 1
                self._fail(str(error))
                continue
            except BaseException:
                self._fail("a call was interrupted")
                raise
            with changed:
                self._is_receiving = False
                for frame in frames:
                    self._finish(*frame)
                changed.notify_all()

    def _receive(self) -> List[Tuple[Any, Dict[str, Any], Buffer]]:
        count = self._socket.recv_into(self._reader.room())
        if count == 0:
            raise OSError("it has closed the connection")
        return list(self._reader.filled(count))

    def _finish(self, header: Any, head: Dict[str, Any], tail: Buffer) -> None:
        """Records a frame. Those that are not final, such as `yielded`, are ignored."""
        if header.kind not in _FINAL:
            return
        call = self._calls.pop(header.id, None)
        if call is None:
            return
        call.kind, call.head, call.tail = header.kind, head, tail
        if call.is_abandoned:
            self._give_back(call)

    def _give_back(self, call: Call) -> None:
        region, call.region = call.region, None
        if region is not None and self._memory is not None:
            self._memory.give_back(region)
            self._changed.notify_all()

    def _fail(self, reason: str) -> None:
        """Ends the process, and lets all calls fail."""
        with self._changed:
            has_failed, self._failure = self._failure is not None, self._failure or reason
        if has_failed:
            return
        try:
            self._reap(reason)
        finally:
            self._is_gone.set()

    def _reap(self, reason: str) -> None:
        # Forked processes may have copies of the socket: `close` alone would not end the connection.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_EXIT_SECONDS)
        except BaseException as error:
            self._process.kill()
            self._process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise  # a second interrupt
        finally:
            self._release(reason)

    def _release(self, reason: str) -> None:
        """Lets the calls of a process that has ended fail, and gives back what it had."""
        self._log_thread.join(_LOG_SECONDS)
        with self._changed:
            self._failure = self._describe_end(reason)
            self._is_receiving = False
            self._calls.clear()
            self._close_memory()
            self._changed.notify_all()
        self._socket.close()

    def _describe_end(self, reason: str) -> str:
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        message = f"the process that evaluates `{self.arguments.location}` {how} ({reason})"
        log = "\n".join(self._log)
        return f"{message}; the end of its log:\n{log}" if log else message

    def _ended(self) -> ScoringError:
        """Returns the error of all calls of a child that has ended. Waits until it has."""
        self._is_gone.wait(_EXIT_SECONDS + _LOG_SECONDS)
        return ScoringError(self._failure or "the process has ended")

    def _close_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _read_log(self) -> None:
        """Passes the log on to standard error, and keeps its last lines."""
        line = b""
        while True:
            try:
                read = os.read(self._log_pipe, 64 << 10)
            except OSError:
                break
            if not read:
                break
            with contextlib.suppress(OSError):
                os.write(2, read)  # not `sys.stderr`, whose lock a daemon thread must not have when Python ends
            *lines, line = (line + read).split(b"\n")
            self._log.extend(line[:_LOG_WIDTH].decode("utf-8", "replace") for line in lines)
            line = line[:_LOG_WIDTH]
        if line:
            self._log.append(line.decode("utf-8", "replace"))
        with contextlib.suppress(OSError):
            os.close(self._log_pipe)


_FINAL = frozenset(
    (
        FrameKind.READY,
        FrameKind.LOADED,
        FrameKind.DONE,
        FrameKind.ANSWER,
        FrameKind.REPLY,
        FrameKind.ERROR,
        FrameKind.PONG,
    )
)


def _memory_file(regions: int) -> Optional[MemoryFile]:
    try:
        return MemoryFile(regions=regions)
    except OSError:
        return None  # tensors are sent over the socket
