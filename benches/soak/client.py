"""Clients of the soak test, with asyncio and the standard library only: HTTP/1.1, and gRPC over HTTP/2."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from dataclasses import dataclass, field

LIMIT = 64 * 1024 * 1024
#: gRPC calls on one connection. What they return must fit into the window that HTTP/2 begins with.
CALLS = 40


class Wrong(Exception):
    """The server did not answer as it should."""


@dataclass
class Answer:
    """A response to a request over HTTP/1.1."""

    status: int
    headers: dict[str, str]
    body: bytes


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Http:
    """A client that keeps its connections open."""

    port: int
    tls: ssl.SSLContext | None = None
    headers: dict[str, str] = field(default_factory=dict)
    idle: list[Streams] = field(default_factory=list)

    async def connect(self) -> Streams:
        """Opens a connection."""
        name = "localhost" if self.tls else None
        return await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT, ssl=self.tls, server_hostname=name)

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """The bytes of a request."""
        fields = {"host": "localhost", "content-length": str(len(body)), **self.headers, **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    async def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        """Sends a request and reads the response. A kept connection that the server has closed is replaced."""
        sent = self.request(method, path, body, headers or {})
        while True:
            kept = bool(self.idle)
            reader, writer = self.idle.pop() if kept else await self.connect()
            try:
                writer.write(sent)
                await writer.drain()
                answer, keep = await self.read(reader)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                writer.transport.abort()
                if kept and not getattr(error, "partial", b""):
                    continue
                raise
            except BaseException:
                writer.transport.abort()
                raise
            if keep and len(self.idle) < 32:
                self.idle.append((reader, writer))
            else:
                writer.close()
            return answer

    async def read(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        """Reads a response, and returns whether its connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        if headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append(await reader.readexactly(size))
                await reader.readexactly(2)
            await reader.readexactly(2)
            body = b"".join(parts)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(lines[0].split()[1]), headers, body), headers.get("connection") != "close"

    async def leave(self, sent: bytes, after: bytes | None = None) -> None:
        """Sends bytes and disconnects: at once, or after the response contains some bytes."""
        reader, writer = await self.connect()
        try:
            writer.write(sent)
            await writer.drain()
            if after is not None:
                await reader.readuntil(after)
        finally:
            writer.transport.abort()

    def close(self) -> None:
        """Closes the kept connections."""
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()


# --- gRPC ------------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field_of(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields_of(message: bytes) -> list[tuple[int, bytes]]:
    """The fields with a length of a protobuf message. The messages of these tests have no others at their top."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 != 2:
            raise Wrong(f"field {key >> 3} of a protobuf message has wire type {key & 7}")
        length = number()
        found.append((key >> 3, message[at : at + length]))
        at += length
    return found


def infer_message(
    model: str, name: str, datatype: str, shape: list[int], content: bytes, outputs: tuple[str, ...] = ()
) -> bytes:
    """A `ModelInferRequest` with one input as raw contents, and the outputs that are wanted, if not all."""
    tensor = field_of(1, name.encode()) + field_of(2, datatype.encode()) + field_of(3, b"".join(map(varint, shape)))
    wanted = b"".join(field_of(6, field_of(1, one.encode())) for one in outputs)
    return field_of(1, model.encode()) + field_of(5, tensor) + wanted + field_of(7, content)


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def text(value: str) -> bytes:
    """A string of HPACK, without Huffman's code."""
    coded = value.encode()
    if len(coded) < 127:
        return bytes([len(coded)]) + coded
    return bytes([127]) + varint(len(coded) - 127) + coded


@dataclass
class Grpc:
    """A client of one connection at a time, with one call at a time. It has no compression and reads no headers."""

    port: int
    tls: ssl.SSLContext | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    streams: Streams | None = None
    calls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def infer(self, message: bytes) -> bytes | None:
        """Calls `ModelInfer`. Returns the bytes of the response, or `None` if the call failed."""
        async with self.lock:
            if self.calls == CALLS:
                self.close()
            try:
                return await self.call(message)
            except BaseException:
                self.close()
                raise

    async def call(self, message: bytes) -> bytes | None:
        """One call on the open connection."""
        if self.streams is None:
            name = "localhost" if self.tls else None
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, server_hostname=name)
            self.streams[1].write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        reader, writer = self.streams
        stream = 2 * self.calls + 1
        self.calls += 1
        fields = {
            ":method": "POST",
            ":scheme": "https" if self.tls else "http",
            ":path": "/inference.GRPCInferenceService/ModelInfer",
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
            **self.metadata,
        }
        block = b"".join(b"\0" + text(name) + text(value) for name, value in fields.items())
        framed = b"\0" + struct.pack(">I", len(message)) + message
        writer.write(frame(1, 4, stream, block) + frame(0, 1, stream, framed))
        await writer.drain()
        received = b""
        while True:
            head = await reader.readexactly(9)
            content = await reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, of = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
            if kind == 4 and not flags & 1:
                writer.write(frame(4, 1, 0, b""))
            elif kind == 6 and not flags & 1:
                writer.write(frame(6, 1, 0, content))
            elif kind == 7 or (kind == 3 and of == stream):
                raise ConnectionResetError(f"HTTP/2 frame {kind}: {content!r}")
            elif of == stream and kind == 0:
                received += content
            if of == stream and kind in (0, 1) and flags & 1:
                break
        return received[5:] or None

    def close(self) -> None:
        """Closes the connection. The next call opens another one."""
        if self.streams is not None:
            self.streams[1].transport.abort()
        self.streams, self.calls = None, 0


async def timed(answer):
    """Awaits an answer, and returns it with the seconds it took."""
    began = time.perf_counter()
    found = await answer
    return found, time.perf_counter() - began
