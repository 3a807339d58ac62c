"""The socket to the server, on the event loop that runs the models."""

import asyncio
from typing import Any, Callable, Dict, List, Optional

from .frames import Buffer, FrameReader, Header, Kind, write_frame

Receive = Callable[[Header, Dict[str, Any], Buffer], None]

#: Parts up to this size are joined, so that they leave in one system call.
_JOIN = 64 << 10


class Connection(asyncio.BufferedProtocol):
    """Receives frames and sends them. All methods belong to the loop's thread."""

    def __init__(self, receive: Receive, lost: Callable[[], None]) -> None:
        """Calls `receive` for each frame, and `lost` once, when the server has gone."""
        self._receive = receive
        self._lost = lost
        self._reader = FrameReader()
        self._waiting: List[Buffer] = []
        self._transport: Optional[asyncio.Transport] = None

    def send(self, kind: Kind, id: int = 0, head: Optional[Dict[str, Any]] = None, *tail: Buffer) -> None:
        """Sends a frame with the next `flush`."""
        self._waiting += write_frame(kind, id, head, tail)

    def flush(self) -> None:
        """Hands what waits to the system."""
        waiting, self._waiting = self._waiting, []
        if not waiting or self._transport is None or self._transport.is_closing():
            return
        small: List[Buffer] = []
        for part in waiting:
            if len(part) <= _JOIN:
                small.append(part)
                continue
            if small:
                self._transport.write(b"".join(small))
                small = []
            self._transport.write(part)
        if small:
            self._transport.write(small[0] if len(small) == 1 else b"".join(small))

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns memory for what arrives."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Passes on the frames that are whole now."""
        for header, head, tail in self._reader.filled(nbytes):
            self._receive(header, head, tail)
        self.flush()

    def eof_received(self) -> bool:
        """Closes."""
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Tells that the server has gone."""
        self._lost()
