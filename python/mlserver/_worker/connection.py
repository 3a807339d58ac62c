"""The socket to the server, on the event loop that runs the models.

It does not use asyncio's transports, because they copy the data that a full socket does not accept immediately.
"""

import asyncio
import os
import select
import socket
import threading
import traceback
from contextlib import suppress
from time import monotonic
from typing import Any, Callable, Dict, List

from .frames import Buffer, FrameKind, FrameReader, Head, Header, write_frame

Receive = Callable[[Header, Dict[str, Any], Buffer], None]

#: Buffers of at most this size in total, in bytes, are joined: that is cheaper than passing each to the kernel.
_JOIN_LIMIT = 16 << 10
#: How long answers wait for those that follow, in seconds.
_GATHER_SECONDS = 0.001
#: The most buffers in one system call; the kernel's limit is 1024.
_MAX_BUFFERS = 64


def _ignore(_header: Header, _head: Dict[str, Any], _tail: Buffer) -> None:
    pass


class Connection:
    """Receives frames on the event loop's thread, and sends frames from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: socket.socket, lost: Callable[[], None]) -> None:
        """Calls `lost` if the server disconnects or sends an invalid frame."""
        self._loop = loop
        self._socket = server
        self._receive: Receive = _ignore
        self._lost = lost
        self._reader = FrameReader()
        #: Whether received frames are being processed; what they send is flushed afterwards.
        self.is_reading = False
        self._is_detached = False
        #: Whether the event loop will flush in a moment, so that what is sent until then may wait.
        self._will_flush = False
        #: Guards the fields below.
        self._lock = threading.Lock()
        self._outgoing: List[Buffer] = []
        #: The number of bytes in `_outgoing`.
        self._outgoing_size = 0
        #: Whether the socket is full; the event loop reports when it is writable again.
        self._full = False

    def open(self, receive: Receive) -> None:
        """Calls `receive` for each frame from now on."""
        self._receive = receive
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Sends the remaining buffers, and closes the socket."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        with self._socket, suppress(OSError):  # the server may have disconnected
            self._socket.setblocking(True)
            for part in self._outgoing:
                self._socket.sendall(part)

    def detach(self) -> None:
        """Replaces the socket in a forked child, which must neither take frames nor send any."""
        self._is_detached = True
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._socket.fileno())
        os.close(null)

    def send(self, kind: FrameKind, id: int = 0, head: Head = None, *tail: Buffer) -> None:
        """Sends a frame with the next `flush`."""
        if self._is_detached:
            # User code has forked, and the child returns into the worker's code, which must run only in the parent.
            os._exit(1)
        parts, size = write_frame(kind, id, head, tail)
        with self._lock:
            self._outgoing += parts
            self._outgoing_size += size

    def flush(self) -> None:
        """Writes as many of the buffers as the socket accepts."""
        with self._lock:
            if self._outgoing and not self._full:
                self._write()

    def expect_more(self) -> None:
        """Lets `flush_later` gather answers for a moment. Called on the event loop's thread."""
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_later(_GATHER_SECONDS, self._flush_gathered)

    def flush_later(self) -> None:
        """Does what `flush` does: at the end of the moment, if answers are being gathered."""
        # If the moment ends after this line, its flush sends what was sent before this call.
        if not self._will_flush:
            self.flush()

    def _flush_gathered(self) -> None:
        self._will_flush = False
        self.flush()

    def drain(self, timeout: float) -> bool:
        """Writes all buffers, on any thread, and waits for the server to read them. Returns whether it has."""
        end = monotonic() + timeout
        while True:
            with self._lock:
                if self._outgoing:
                    self._write()
                if not self._outgoing:
                    return True
            left = end - monotonic()
            if left <= 0:
                return False
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            poll.poll(left * 1000)

    def _write(self) -> None:
        outgoing = self._outgoing
        try:
            if self._outgoing_size <= _JOIN_LIMIT:
                sent = self._socket.send(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))
                if sent == self._outgoing_size:
                    self._outgoing = []
                    self._outgoing_size = 0
                    return
                self._advance(sent)
            while self._outgoing:
                self._advance(self._socket.sendmsg(self._outgoing[:_MAX_BUFFERS]))
        except (BlockingIOError, InterruptedError):
            self._full = True
            with suppress(RuntimeError):  # the event loop is closed, and `close` sends the rest
                self._loop.call_soon_threadsafe(self._loop.add_writer, self._socket, self._writable)
        except OSError:
            self._lost()

    def _advance(self, sent: int) -> None:
        """Removes the first `sent` bytes from the buffers."""
        self._outgoing_size -= sent
        done = 0
        for part in self._outgoing:
            if len(part) > sent:
                break
            sent -= len(part)
            done += 1
        del self._outgoing[:done]
        if sent:
            self._outgoing[0] = memoryview(self._outgoing[0])[sent:]

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        with self._lock:
            self._full = False
        self.flush()

    def _readable(self) -> None:
        """Passes complete frames to `receive`."""
        reader, receive = self._reader, self._receive
        self.is_reading = True
        try:
            while True:
                received = self._socket.recv_into(reader.room())
                if not received:
                    self._lost()
                    return
                for header, head, tail in reader.filled(received):
                    receive(header, head, tail)
                if not reader.is_inside:
                    # Later frames are read after the calls of these frames have begun.
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._lost()
            return
        except Exception:
            # The connection is unusable: the start of the next frame is unknown, and so is the state of this one.
            traceback.print_exc()
            self._lost()
            return
        finally:
            self.is_reading = False
        self.flush()
