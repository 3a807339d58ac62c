"""The lifecycle of a worker process: it starts with the server's `hello` and ends with the server."""

import array
import asyncio
import faulthandler
import mmap
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Dict, Optional, Tuple

from . import output, process_state, signals
from .connection import Connection
from .frames import HEADER_BYTES, PROTOCOL, SLOTS, FrameError, FrameKind, read_head, read_header
from .service import Service
from .threads import run_loop, until_done

#: Exit code if the server has stopped the worker.
DONE = 0
#: Exit code if the server has exited, or has another version.
LOST = 1

_PR_SET_PDEATHSIG = 1

#: How often a process looks for its parent where the kernel does not watch it, in seconds.
_PARENT_SECONDS = 0.1


def main() -> int:
    """Runs the worker and returns its exit code."""
    parent = os.getppid()
    process_state.ignore_server_signals()
    # Writes the stacks of all threads if the process crashes, and if the server aborts it because it hangs.
    faulthandler.enable(2)
    server = _take_socket()
    hello, page = _read_hello(server)
    _die_with_parent(parent)
    output.install(bool(hello.get("debug")), hello.get("logging"))
    _add_paths(hello.get("paths", []))
    code: int = run_loop(asyncio.new_event_loop(), _serve(server, hello, page))
    output.finish()
    return code


async def _serve(server: socket.socket, hello: Dict[str, Any], page: "mmap.mmap") -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    signals.install(loop)
    connection = Connection(loop, server, lambda: os._exit(LOST))
    process_state.after_fork(connection.detach)
    service = Service(loop, connection, page, inline=bool(hello.get("inline")), stopped=lambda: end(DONE))
    connection.open(service.receive)
    connection.send(
        FrameKind.READY,
        head={"protocol": PROTOCOL, "python": ".".join(map(str, sys.version_info[:3])), "executable": sys.executable},
    )
    connection.flush()
    try:
        await until_done(ended)
        return ended.result()
    finally:
        connection.close()


def _take_socket() -> socket.socket:
    """Moves the socket away from standard input, so that user code cannot read it."""
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return socket.socket(fileno=descriptor)


def _read_hello(server: socket.socket) -> Tuple[Dict[str, Any], "mmap.mmap"]:
    """Reads the first frame, and the page whose descriptor comes with its first byte."""
    # `socket.recv_fds` needs Python 3.9.
    text, ancillary, _flags, _address = server.recvmsg(HEADER_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
    descriptor: Optional[int] = None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(data[: descriptors.itemsize])
            descriptor = descriptors[0]
    header = read_header(text + _read_exactly(server, HEADER_BYTES - len(text)))
    hello = read_head(_read_exactly(server, header.head))
    if header.kind != FrameKind.HELLO or descriptor is None or hello.get("protocol") != PROTOCOL:
        raise FrameError(f"this worker uses protocol {PROTOCOL}, but the server uses another one: {hello}")
    page = mmap.mmap(descriptor, 8 * SLOTS)
    os.close(descriptor)
    return hello, page


def _read_exactly(server: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = server.recv(size)
        if not part:
            raise FrameError("the server disconnected before its `hello`")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _die_with_parent(parent: int) -> None:
    """Ends this process when its parent exits for any reason, even if user code is running.

    `parent` is the parent at the start: the server, or a program between the server and the interpreter.
    """
    if not _kernel_kills():
        threading.Thread(target=_watch_parent, args=(parent,), name="mlserver-parent", daemon=True).start()
    if os.getppid() != parent:
        os._exit(LOST)


def _kernel_kills() -> bool:
    """Has the kernel kill this process when its parent exits. Returns whether it can do that: only Linux."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _watch_parent(parent: int) -> None:
    """Ends this process when it has another parent. Code that holds the interpreter's lock delays it."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(LOST)


def _add_paths(paths: Any) -> None:
    """Adds folders to the import path, after the SDK and the folders in PYTHONPATH."""
    position = 1 + len(list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
    for path in reversed(paths):
        if path not in sys.path:
            sys.path.insert(position, path)
