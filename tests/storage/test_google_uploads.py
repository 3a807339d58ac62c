"""Interrupted uploads to Google Cloud Storage: continued with what the store has kept, and complete objects only.

fake-gcs-server completes an object when it is asked for the state of its session, and keeps nothing of a broken request. So the
sessions are those of a server in front of it, which does what Google documents for resumable uploads.
"""

import contextlib
import http.client
import json
import random
import re
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import BINARY, PATIENCE, ROOT, environment, wait_until

MODEL = ROOT / "examples/quickstart/iris-xgboost"
# Of a session, whole units are kept.
UNIT = 256 << 10
# How much the client sends at once.
PIECE = 16 << 20
KEY = "google-uploads/out.jsonl"
ROWS = 150_000


class Session:
    def __init__(self, key):
        self.key = key
        self.data = bytearray()
        self.object = None
        self.ended = None


class Broken(Exception):
    """The connection is reset instead of an answer."""


class Google:
    """Google's upload sessions, in front of fake-gcs-server, which gets the complete objects.

    `fault` is called with the number of a request that has data, and returns None or a dictionary: `reset` after so many bytes
    of it, `kept` bytes of it at most, and instead of the answer `status` (with `headers`), `lost`, `stall` or `cut`.
    """

    def __init__(self, store):
        self.store = store
        self.sessions = {}
        self.ranges = []
        self.received = 0
        self.fault = lambda _number: None
        self.refused = None
        self.hold_at = None
        self.held, self.released = threading.Event(), threading.Event()
        # Held while a request is answered. The client sends one after the other.
        self.answering = threading.Lock()
        self.errors = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                front.forward(self)

            do_HEAD = do_DELETE = do_GET

            def do_POST(self):
                with front.answering:
                    front.begin(self)

            def do_PUT(self):
                try:
                    with front.answering:
                        front.take(self)
                except Broken:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def variables(self):
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.port}"}

    def stop(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        assert self.errors == []

    @staticmethod
    def reply(handler, status, body=b"", **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def forward(self, handler):
        target = urllib.parse.urlsplit(self.store.endpoint).netloc
        connection = http.client.HTTPConnection(target, timeout=PATIENCE)
        connection.request(handler.command, handler.path, headers={"Host": target})
        response = connection.getresponse()
        body = response.read()
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                handler.send_header(name, value)
        # Of a HEAD, the length is that of the object.
        length = response.getheader("Content-Length") if handler.command == "HEAD" else len(body)
        handler.send_header("Content-Length", length or "0")
        handler.end_headers()
        handler.wfile.write(body)
        connection.close()

    def begin(self, handler):
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query)
        if self.refused:
            self.reply(handler, self.refused, b'{"error": {"message": "not today"}}')
            return
        name = f"session-{len(self.sessions)}"
        self.sessions[name] = Session(query["name"][0])
        if self.hold_at == "start":
            self.held.set()
            self.released.wait(PATIENCE)
        with contextlib.suppress(OSError):
            self.reply(handler, 200, Location=f"http://elsewhere.invalid/upload?upload_id={name}")

    def state(self, handler, session):
        if not session.data:
            return self.reply(handler, 308)
        return self.reply(handler, 308, Range=f"bytes=0-{len(session.data) - 1}")

    def take(self, handler):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query)
        session = self.sessions[query["upload_id"][0]]
        text = handler.headers["Content-Range"]
        self.ranges.append(text)
        length = int(handler.headers.get("Content-Length") or 0)
        if session.ended:
            handler.rfile.read(length)
            return self.reply(handler, session.ended)
        if session.object is not None:
            handler.rfile.read(length)
            return self.reply(handler, 200, session.object)
        if found := re.fullmatch(r"bytes \*/(\d+)", text):
            return self.complete(handler, session, {}) if found[1] == "0" else self.state(handler, session)
        start, end, size = map(int, re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", text).groups())
        if end - start + 1 != length or start > len(session.data) or (end + 1 < size and length % UNIT):
            self.errors.append((text, length, len(session.data)))
            return self.reply(handler, 400)
        number = len([found for found in self.ranges if "*" not in found]) - 1
        fault = self.fault(number) or {}
        data, is_whole = self.read(handler, length, fault.get("reset"))
        data = data[: fault.get("kept", len(data))]
        new = start + len(data) - len(session.data)
        if not is_whole or start + len(data) < size:
            new -= (len(session.data) + new) % UNIT
        if new > 0:
            offset = len(session.data) - start
            session.data += data[offset : offset + new]
        if not is_whole or ("lost" in fault and len(session.data) < size):
            raise Broken
        if status := fault.get("status"):
            return self.reply(handler, status, b"", **fault.get("headers", {}))
        if "stall" in fault:
            if len(session.data) == size:
                self.finish(session)
            time.sleep(fault["stall"])
            raise Broken
        if len(session.data) == size:
            return self.complete(handler, session, fault)
        return self.state(handler, session)

    def read(self, handler, length, cut):
        """Returns what arrives of a body, and whether it is all of it."""
        data = bytearray()
        while len(data) < length:
            most = min(1 << 16, length - len(data))
            if cut is not None:
                most = min(most, cut - len(data))
            if isinstance(self.hold_at, int):
                most = min(most, self.hold_at - self.received)
            if most <= 0:
                if cut is None:
                    self.held.set()
                    self.released.wait(PATIENCE)
                return data, False
            piece = handler.rfile.read1(most)
            if not piece:
                return data, False
            data += piece
            self.received += len(piece)
        return data, True

    def finish(self, session):
        self.store.put(session.key, bytes(session.data))
        session.object = json.dumps({"name": session.key, "size": str(len(session.data))}).encode()

    def complete(self, handler, session, fault):
        self.finish(session)
        if self.hold_at == "end":
            self.held.set()
            self.released.wait(PATIENCE)
            raise Broken
        if "lost" in fault:
            raise Broken
        if "cut" in fault:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(session.object)))
            handler.end_headers()
            handler.wfile.write(session.object[: fault["cut"]])
            raise Broken
        return self.reply(handler, 200, fault.get("object", session.object))


def command():
    source = ["-i", "in.csv", "-o", f"gs://models/{KEY}", "--batch-size", "5000", "--resume"]
    return [BINARY, "infer", "--embedded", MODEL, *source]


def infer(folder, front, code=0, **variables):
    """Runs `mlserver infer`, and returns what it printed."""
    variables = environment(MLSERVER_STORAGE_CACHE=str(folder / "cache"), **front.variables(), **variables)
    options = {"env": variables, "cwd": folder, "timeout": 5 * PATIENCE}
    done = subprocess.run(command(), capture_output=True, text=True, **options)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    return printed


@pytest.fixture(scope="module")
def answered(gcs, tmp_path_factory):
    """A folder with the answers of a run that could not upload them, and these answers."""
    folder = tmp_path_factory.mktemp("answered")
    lines = ["sepal length,sepal width,petal length,petal width"]
    lines += [f"5.1,3.5,{number % 70 / 10},{number % 25 / 10}" for number in range(ROWS)]
    (folder / "in.csv").write_text("\n".join(lines) + "\n")
    front = Google(gcs)
    front.refused = 403
    printed = infer(folder, front, code=1)
    assert "not today" in printed and "repeat the command with --resume to continue the upload" in printed
    front.stop()
    answers = max((folder / "cache/.answers").rglob("*.jsonl"), key=lambda path: path.stat().st_size).read_bytes()
    assert 2 * PIECE + 2 * UNIT < len(answers) < 3 * PIECE and len(answers) % UNIT
    return folder, answers


@pytest.fixture
def folder(answered, tmp_path):
    """A copy of the folder with the answers."""
    shutil.copytree(answered[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def data(answered):
    return answered[1]


@pytest.fixture
def front(gcs):
    front = Google(gcs)
    if exists(gcs):
        delete(gcs)
    yield front
    front.stop()


def request_object(gcs, method):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(gcs.endpoint).netloc, timeout=PATIENCE)
    connection.request(method, f"/storage/v1/b/models/o/{urllib.parse.quote(KEY, safe='')}")
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def exists(gcs):
    return request_object(gcs, "GET") == 200


def delete(gcs):
    assert request_object(gcs, "DELETE") == 200


def check(gcs, folder, data):
    """The object has the bytes of the answers, and nothing of the upload is left on this machine."""
    assert gcs.get(KEY) == data
    assert [path for path in (folder / "cache").rglob("*") if path.is_file()] == []


def kill(folder, front, at):
    """Kills a run when the front has so many bytes in all, or at another place."""
    front.hold_at = at
    front.held.clear()
    front.released.clear()
    variables = environment(MLSERVER_STORAGE_CACHE=str(folder / "cache"), **front.variables())
    log = folder.parent / "log"
    with log.open("wb") as out:
        run = subprocess.Popen(command(), env=variables, cwd=folder, stdout=out, stderr=out)
    wait_until(front.held.is_set, "the place of the kill", run)
    run.send_signal(signal.SIGKILL)
    run.wait()
    front.hold_at = None
    front.released.set()
    # It keeps what arrived before it knows of the broken connection.
    with front.answering:
        pass


PLACES = ["start", 1, UNIT - 1, UNIT, UNIT + 1, PIECE - 1, PIECE + 1, 2 * PIECE + UNIT + 1, "last byte", "end"]


@pytest.mark.parametrize("place", PLACES)
def test_killed_uploads_are_continued_by_what_the_store_kept(gcs, front, folder, data, place):
    at = len(data) - 1 if place == "last byte" else place
    kill(folder, front, at)
    is_complete = place == "end"
    assert exists(gcs) == is_complete
    before = front.received
    printed = infer(folder, front)
    if is_complete:
        assert "skipping 1 inputs, whose answers are complete" in printed
        assert gcs.get(KEY) == data
    else:
        assert f"all {ROWS} rows have been answered already" in printed
        check(gcs, folder, data)
    # What was kept is not sent again, also if only the last answer was lost.
    kept = at - at % UNIT if isinstance(at, int) else len(data) if is_complete else 0
    assert front.received - before == len(data) - kept
    assert len(front.sessions) == (2 if place == "start" else 1)


def test_ten_kills_in_a_row_are_continued(gcs, front, folder, data):
    moments = random.Random(5)
    for _ in range(10):
        kill(folder, front, front.received + moments.randrange(1, len(data) // 12))
        assert not exists(gcs)
    infer(folder, front)
    check(gcs, folder, data)
    assert len(front.sessions) == 1
    # A kill loses less than a unit.
    assert front.received < len(data) + 10 * UNIT


FAULTS = {
    "a request is reset": {"reset": 5 * UNIT + 77},
    "a request is reset at once": {"reset": 0},
    "the server fails and keeps a part": {"kept": 7 * UNIT + 5, "status": 503},
    "the server limits the rate": {"kept": 0, "status": 429, "headers": {"Retry_After": "1"}},
    "the answer is lost": {"lost": True},
    "nothing is kept": {"kept": 0},
    "a part is kept": {"kept": 3 * UNIT},
    "the server stalls": {"stall": 4},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_requests_are_continued_in_one_run(gcs, front, folder, data, fault):
    """Each piece fails once, the last one included."""
    front.fault = lambda number: FAULTS[fault] if number % 2 == 0 else None
    infer(folder, front, MLSERVER_STORAGE_IDLE_TIMEOUT="3")
    check(gcs, folder, data)
    assert len(front.sessions) == 1
    assert len(front.ranges) > 4


def test_a_cut_answer_does_not_send_the_object_again(gcs, front, folder, data):
    front.fault = lambda number: {"cut": 5} if number == 2 else None
    infer(folder, front)
    check(gcs, folder, data)
    assert front.received == len(data)
    assert front.ranges[-1] == f"bytes */{len(data)}"


@pytest.mark.parametrize("status", [404, 410])
def test_ended_sessions_are_replaced(gcs, front, folder, data, status):
    """Between two runs, and within one."""
    kill(folder, front, PIECE + UNIT)
    front.sessions["session-0"].ended = status

    def end(number):
        if len(front.sessions) == 2 and number % 3 == 0:
            front.sessions["session-1"].ended = status

    front.fault = end
    infer(folder, front)
    check(gcs, folder, data)
    assert len(front.sessions) == 3


def test_uploads_that_fail_for_good_leave_no_object(gcs, front, folder, data):
    front.fault = lambda number: {"kept": UNIT, "status": 403} if number == 1 else None
    printed = infer(folder, front, code=1)
    assert f"cannot upload to `gs://models/{KEY}`" in printed and "access denied with no credentials" in printed
    assert "repeat the command with --resume to continue the upload" in printed
    assert not exists(gcs)
    front.fault = lambda _number: {"kept": 0, "status": 503}
    printed = infer(folder, front, code=1)
    assert "the server answered 503" in printed and not exists(gcs)
    before = front.received
    front.fault = lambda _number: None
    infer(folder, front)
    check(gcs, folder, data)
    assert front.received - before == len(data) - PIECE - UNIT


def test_objects_of_another_size_are_reported(gcs, front, folder, data):
    front.fault = lambda number: {"object": b'{"size": "7"}'} if number == 2 else None
    printed = infer(folder, front, code=1)
    assert f"`{KEY}` has 7 bytes, but {len(data)} were announced" in printed
