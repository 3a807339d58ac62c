"""A pool of HTTP connections, for calls from an event loop, with the standard library.

Each call runs in a thread of a bounded pool. A call that is cancelled, or that runs out of time, closes its connection, which
ends the thread's work at once.
"""

import asyncio
import base64
import concurrent.futures
import contextlib
import http.client
import os
import select
import socket
import ssl
import threading
import time
import urllib.parse
from typing import Any, AsyncGenerator, Dict, List, Mapping, Optional, Tuple, Union

__all__ = ["HttpPool", "RequestTimeout", "Response", "StreamedResponse", "Unreachable", "tls_context"]

#: Calls at a time, and idle connections kept, of one pool.
_CONNECTIONS = 32
#: The longest response that is read into memory.
_MAX_RESPONSE = 1 << 30
_CHUNK = 1 << 20
#: The pause before the first retry, which doubles each time up to the longest one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0

_Origin = Tuple[str, str, int]


class Unreachable(ConnectionError):
    """No connection could be opened: nothing has been sent."""

    #: What a transformer answers.
    http_status = 503


class RequestTimeout(TimeoutError):
    """The response was not complete in time."""

    #: What a transformer answers.
    http_status = 504


class Response:
    """A response that has been read completely."""

    __slots__ = ("content", "headers", "reason", "status_code", "url")

    def __init__(self, status_code: int, reason: str, headers: List[Tuple[str, str]], content: bytes, url: str) -> None:
        self.status_code = status_code
        self.reason = reason
        #: With names in lower case.
        self.headers: Dict[str, str] = {name.lower(): value for name, value in headers}
        self.content = content
        self.url = url


class _Call:
    """One request, which can be aborted from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self.aborted = False

    def watch(self, connection: Optional[http.client.HTTPConnection]) -> None:
        """Sets what `abort` closes."""
        with self._lock:
            self._connection = connection
            if self.aborted and connection is not None:
                _shut(connection)

    def abort(self) -> None:
        with self._lock:
            self.aborted = True
            if self._connection is not None:
                _shut(self._connection)


def _shut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):  # it is closed already
            # The socket below TLS: the thread that uses the connection sees its end.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class HttpPool:
    """Connections to any number of hosts, with one configuration."""

    def __init__(
        self,
        retries: int = 0,
        verify: Union[bool, str, ssl.SSLContext] = True,
        cert: Any = None,
        auth: Optional[Tuple[str, str]] = None,
        connections: int = _CONNECTIONS,
    ) -> None:
        self._retries = max(retries, 0)
        self._verify, self._cert = verify, cert
        self._auth = auth
        self._context: Optional[ssl.SSLContext] = None
        self._limit = connections
        self._idle: Dict[_Origin, List[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()
        self._threads: Optional[concurrent.futures.ThreadPoolExecutor] = None
        self._closed = False

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: Optional[bytes], timeout: Optional[float]
    ) -> Response:
        """Sends a request, and returns the response. Raises `RequestTimeout` if it takes longer than `timeout` seconds."""
        call = _Call()
        end = None if timeout is None else time.monotonic() + timeout
        future = self._executor().submit(self._run, call, method, url, dict(headers), body, end)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except (asyncio.TimeoutError, TimeoutError, socket.timeout) as error:  # three types before Python 3.11
            call.abort()
            raise RequestTimeout(f"{url} did not answer within {timeout} s") from error
        except asyncio.CancelledError:
            call.abort()
            raise

    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: Optional[bytes], timeout: Optional[float]
    ) -> "StreamedResponse":
        """Sends a request, and returns the response when its head is there. `timeout` applies to each part of it."""
        call = _Call()
        streamed = StreamedResponse(call, self._executor(), timeout)
        await streamed.run(lambda: self._begin(call, streamed, method, url, dict(headers), body, timeout))
        return streamed

    def _begin(
        self,
        call: _Call,
        streamed: "StreamedResponse",
        method: str,
        url: str,
        headers: Dict[str, str],
        body: Optional[bytes],
        timeout: Optional[float],
    ) -> None:
        origin, path = _target(url)
        connection = self._connected(call, origin, None if timeout is None else time.monotonic() + timeout)
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            connection.request(method, path, body, headers)
            streamed.begin(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Closes idle connections. Requests fail from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
            threads, self._threads = self._threads, None
        for connections in idle.values():
            for connection in connections:
                connection.close()
        if threads is not None:
            threads.shutdown(wait=False)

    def _executor(self) -> concurrent.futures.ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise RuntimeError("Cannot send a request, as the client has been closed.")
            if self._threads is None:
                self._threads = concurrent.futures.ThreadPoolExecutor(self._limit, "kserve-http")
            return self._threads

    def _run(
        self, call: _Call, method: str, url: str, headers: Dict[str, str], body: Optional[bytes], end: Optional[float]
    ) -> Response:
        origin, path = _target(url)
        if self._auth is not None and not any(name.lower() == "authorization" for name in headers):
            credentials = ":".join(self._auth).encode()
            headers["authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        connection = self._connected(call, origin, end)
        try:
            _limit_wait(connection, end)
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = _read(response)
            answer = Response(response.status, response.reason, response.getheaders(), content, url)
            reusable = not response.will_close
        except BaseException:
            call.watch(None)
            connection.close()
            raise
        call.watch(None)
        if reusable and not call.aborted:
            self._keep(origin, connection)
        else:
            connection.close()
        return answer

    def _connected(self, call: _Call, origin: _Origin, end: Optional[float]) -> http.client.HTTPConnection:
        """Returns an open connection, an idle one if there is one."""
        while True:
            with self._lock:
                idle = self._idle.get(origin)
                connection = idle.pop() if idle else None
            if connection is None:
                break
            if _is_open(connection):
                call.watch(connection)
                return connection
            connection.close()
        attempt, pause = 0, _FIRST_PAUSE
        while True:
            connection = self._new(origin, end)
            call.watch(connection)
            try:
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                call.watch(connection)  # which has a socket now
                return connection
            except ssl.SSLCertVerificationError:
                connection.close()
                raise  # another attempt will not help
            except OSError as error:
                connection.close()
                attempt += 1
                if call.aborted or attempt > self._retries or (end is not None and time.monotonic() + pause >= end):
                    host = f"{origin[1]}:{origin[2]}"
                    raise Unreachable(f"cannot connect to {host} in {attempt} attempts: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _new(self, origin: _Origin, end: Optional[float]) -> http.client.HTTPConnection:
        scheme, host, port = origin
        timeout = None if end is None else max(end - time.monotonic(), 0.001)
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        with self._lock:
            if self._context is None:
                self._context = tls_context(self._verify, self._cert)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)

    def _keep(self, origin: _Origin, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            kept = sum(map(len, self._idle.values()))
            if not self._closed and kept < self._limit:
                self._idle.setdefault(origin, []).append(connection)
                return
        connection.close()


class StreamedResponse:
    """A response that is read line by line. It closes its connection at the end."""

    #: The longest line that is read, in bytes.
    max_line = 1 << 20

    def __init__(self, call: _Call, threads: concurrent.futures.ThreadPoolExecutor, timeout: Optional[float]) -> None:
        self.status_code = 0
        self._call, self._threads, self._timeout = call, threads, timeout
        self._connection: Optional[http.client.HTTPConnection] = None
        self._response: Optional[http.client.HTTPResponse] = None

    def begin(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        """Sets what it reads. Called on the thread that has sent the request."""
        self._connection, self._response, self.status_code = connection, response, response.status

    async def run(self, read: Any) -> Any:
        """Runs a part of the exchange on a thread. Closes the connection if it fails, or if the caller is cancelled."""
        try:
            return await asyncio.wrap_future(self._threads.submit(read))
        except (TimeoutError, socket.timeout) as error:
            self.close()
            raise RequestTimeout(f"the server did not answer within {self._timeout} s") from error
        except BaseException:
            self.close()
            raise

    async def lines(self) -> "AsyncGenerator[bytes, None]":
        """Yields the lines, without their ends."""
        response = self._response
        assert response is not None
        try:
            while True:
                line = await self.run(lambda: response.readline(self.max_line))
                if not line:
                    return
                if len(line) == self.max_line:
                    raise ValueError(f"the server sends a line of more than {self.max_line} bytes")
                yield line.rstrip(b"\r\n")
        finally:
            self.close()

    async def content(self) -> bytes:
        """Reads the body as a whole."""
        response = self._response
        assert response is not None
        try:
            found: bytes = await self.run(lambda: _read(response))
            return found
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connection, which ends what runs on a thread."""
        self._call.abort()
        if self._connection is not None:
            self._connection.close()


def _target(url: str) -> Tuple[_Origin, str]:
    """Returns the origin and the path of a URL."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL: expected http://HOST or https://HOST")
    origin = parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    return origin, urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has neither closed an idle connection nor sent anything."""
    sock = connection.sock
    if sock is None:
        return False
    try:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _limit_wait(connection: http.client.HTTPConnection, end: Optional[float]) -> None:
    """Limits how long the next operation waits. A call that is slow bit by bit is aborted by its event loop."""
    if end is None:
        connection.sock.settimeout(None)
        return
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("the request ran out of time before it was sent")
    connection.sock.settimeout(left)


def _read(response: http.client.HTTPResponse) -> bytes:
    chunks: List[bytes] = []
    size = 0
    while True:
        chunk = response.read(_CHUNK)
        if not chunk:
            return b"".join(chunks)
        size += len(chunk)
        if size > _MAX_RESPONSE:
            raise ValueError(f"the response has more than {_MAX_RESPONSE} bytes")
        chunks.append(chunk)


def tls_context(verify: Union[bool, str, ssl.SSLContext] = True, cert: Any = None) -> ssl.SSLContext:
    """Returns what verifies servers: with certificates that the system trusts, those of a file or folder, or not at all.

    `cert` is the file of a client's certificate, or its file, that of its key and the key's password.
    """
    if isinstance(verify, ssl.SSLContext):
        context = verify
    elif isinstance(verify, str):
        folder = os.path.isdir(verify)
        context = ssl.create_default_context(cafile=None if folder else verify, capath=verify if folder else None)
    else:
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    if cert is not None:
        files = (cert,) if isinstance(cert, str) else tuple(cert)
        context.load_cert_chain(*files)
    return context
