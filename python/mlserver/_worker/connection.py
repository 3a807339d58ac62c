"""The socket to the server, on the event loop that runs the models.

It is read and written here rather than by one of asyncio's transports, which copy what a full socket does not take at once.
"""

import asyncio
import socket
import traceback
from contextlib import suppress
from typing import Any, Callable, Dict, List

from .frames import Buffer, FrameReader, Head, Header, Kind, write_frame

Receive = Callable[[Header, Dict[str, Any], Buffer], None]

#: Parts are joined when they are no longer than this in all: that is cheaper than naming each to the system.
_JOIN = 16 << 10
#: How many parts one system call takes at most; the system's own limit is 1024.
_PARTS = 64


class Connection:
    """Receives frames and sends them. All methods belong to the loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: socket.socket, receive: Receive, lost: Callable[[], None]
    ) -> None:
        """Calls `receive` for each frame, and `lost` when the server has gone or sends what is no frame."""
        self._loop = loop
        self._socket = server
        self._receive = receive
        self._lost = lost
        self._reader = FrameReader()
        self._waiting: List[Buffer] = []
        #: How many bytes wait.
        self._size = 0
        #: The socket is full; the loop tells when it takes more.
        self._full = False

    def open(self) -> None:
        """Begins to receive."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Sends what still waits, and lets go of the socket."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        with self._socket, suppress(OSError):  # the server may have gone
            self._socket.setblocking(True)
            for part in self._waiting:
                self._socket.sendall(part)

    def send(self, kind: Kind, id: int = 0, head: Head = None, *tail: Buffer) -> None:
        """Sends a frame with the next `flush`."""
        parts, size = write_frame(kind, id, head, tail)
        self._waiting += parts
        self._size += size

    def flush(self) -> None:
        """Hands what waits to the system, as much as it takes now."""
        if self._full or not self._waiting:
            return
        waiting = self._waiting
        try:
            if self._size <= _JOIN:
                sent = self._socket.send(waiting[0] if len(waiting) == 1 else b"".join(waiting))
                if sent == self._size:
                    self._waiting = []
                    self._size = 0
                    return
                self._advance(sent)
            while self._waiting:
                self._advance(self._socket.sendmsg(self._waiting[:_PARTS]))
        except (BlockingIOError, InterruptedError):
            self._full = True
            self._loop.add_writer(self._socket, self._writable)
        except OSError:
            self._lost()

    def _advance(self, sent: int) -> None:
        """Takes away what has been sent."""
        self._size -= sent
        done = 0
        for part in self._waiting:
            if len(part) > sent:
                break
            sent -= len(part)
            done += 1
        del self._waiting[:done]
        if sent:
            self._waiting[0] = memoryview(self._waiting[0])[sent:]

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._full = False
        self.flush()

    def _readable(self) -> None:
        """Passes on the frames that are whole now."""
        reader, receive = self._reader, self._receive
        try:
            while True:
                received = self._socket.recv_into(reader.room())
                if not received:
                    self._lost()
                    return
                for header, head, tail in reader.filled(received):
                    receive(header, head, tail)
                if not reader.is_inside:
                    # What has come meanwhile can wait until the calls of these frames have begun.
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._lost()
            return
        except Exception:
            # Nobody knows where the next frame begins, or what of this one has happened.
            traceback.print_exc()
            self._lost()
            return
        self.flush()
