"""A worker process with a socket, and an encoding of frames that is independent of the tested code."""

import array
import json
import mmap
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
from typing import Any, Dict, NamedTuple, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "frames"

_HEADER = struct.Struct("<B3xIQQ")

HELLO, LOAD, UNLOAD, PREDICT, STREAM, CALL, ITEM, END, CREDIT, CANCEL, PING, STOP = range(1, 13)
SCRAPE, STEP_ANSWER = 13, 14
READY, LOADED, DONE, ANSWER, REPLY, ERROR, YIELDED, PONG, METRICS, EXPOSITION, STEP, CHUNK = range(64, 76)


def frame(kind: int, id: int = 0, head: Any = None, tail: bytes = b"") -> bytes:
    text = b"" if head is None else json.dumps(head).encode()
    return _HEADER.pack(kind, len(text), id, len(tail)) + text + tail


def fixture(name: str) -> bytes:
    return (FIXTURES / f"{name}.bin").read_bytes()


class Frame(NamedTuple):
    kind: int
    id: int
    head: Any
    tail: bytes
    #: The whole frame, as received.
    whole: bytes


def read_frame(take: Any) -> Optional[Frame]:
    """Reads a frame with `take`, a function that returns the requested number of bytes, or fewer at the end."""
    header = take(_HEADER.size)
    if not header:
        return None
    kind, head_size, id, tail_size = _HEADER.unpack(header)
    head, tail = take(head_size), take(tail_size)
    return Frame(kind, id, json.loads(head or "{}"), tail, header + head + tail)


class Worker:
    """A worker that is ready. Use it in a `with` block."""

    def __init__(self, interpreter: Optional[str] = None, output: Any = subprocess.PIPE, **hello: Any) -> None:
        """Its output goes to a pipe, or to the file `output`, if it may be longer than a pipe holds."""
        self.page_file = tempfile.TemporaryFile()  # noqa: SIM115 (closed where the `with` block ends)
        self.page_file.truncate(2048)
        self.page = mmap.mmap(self.page_file.fileno(), 2048)
        self.server, theirs = socket.socketpair()
        self.server.settimeout(30)
        command = [interpreter or sys.executable, str(ROOT / "python" / "mlserver" / "_worker")]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=theirs, stdout=output, stderr=subprocess.STDOUT, close_fds=True
            )
        head: Dict[str, Any] = {"protocol": 2, "worker": "tests-0", "parent": os.getpid()}
        head["paths"] = [str(ROOT / "python" / "tests")]
        whole = frame(HELLO, 0, {**head, **hello})
        descriptors = array.array("i", [self.page_file.fileno()])
        self.server.sendmsg([whole], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])

    def __enter__(self) -> "Worker":
        self.ready = self.receive()
        assert self.ready.kind == READY
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.page.close()
        self.page_file.close()

    def send(self, *frames: bytes) -> None:
        self.server.sendall(b"".join(frames))

    def receive(self, yields: bool = False) -> Frame:
        """Returns the next frame. Skips `yielded` frames unless `yields` is true."""
        while True:
            found = read_frame(self._take)
            if found is None:
                output = "" if self.process.stdout is None else self.process.stdout.read().decode()
                raise AssertionError(f"the worker has exited: {output}")
            if yields or found.kind != YIELDED:
                return found

    def load(self, implementation: str, model: int = 7, id: int = 256, **settings: Any) -> Frame:
        settings = {"name": "m", "implementation": implementation, "parameters": {}, **settings}
        self.send(frame(LOAD, id, {"model": model, "settings": settings, "source": None}))
        return self.receive()

    def begun(self, id: int) -> bool:
        """Returns whether the page marks a call as begun."""
        return struct.unpack_from("<Q", self.page, 8 * (id % 256))[0] == id

    def _take(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.server.recv(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
