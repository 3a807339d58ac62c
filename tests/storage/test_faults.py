"""What a fetch does when the store fails: resumed or refused, never a wrong byte."""

import contextlib
import hashlib
import os
import random
import signal
import socketserver
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import BINARY, SECRET, content, environment, pull, wait_until

LARGE = (33 << 20) + 777


@pytest.fixture(scope="module")
def data():
    return random.Random(41).randbytes(LARGE)


@pytest.fixture
def key(s3, prefix, data):
    s3.put(f"{prefix}/m.bin", data)
    return f"{prefix}/m.bin"


def first(number_of_faults, fault):
    """A fault of the first requests."""
    return lambda _path, number: fault if number < number_of_faults else None


@pytest.mark.parametrize("kind", ["reset", "end"])
@pytest.mark.parametrize("after", [0, 1, 100_000, (8 << 20) - 1])
def test_broken_connections_are_continued(s3, proxy, key, data, tmp_path, kind, after):
    proxy.faults = first(3, {kind: after})
    pull(s3.uri(key), tmp_path, **s3.variables(proxy.port))
    assert (tmp_path / "m.bin").read_bytes() == data


def test_small_objects_continue_where_they_broke(s3, proxy, prefix, tmp_path):
    s3.put(f"{prefix}/m.bin", bytes(range(256)) * 10_000)
    proxy.faults = first(2, {"reset": 1_200_000})
    pull(s3.uri(f"{prefix}/m.bin"), tmp_path, **s3.variables(proxy.port))
    assert (tmp_path / "m.bin").read_bytes() == bytes(range(256)) * 10_000
    ranges = [found for found in proxy.requests if found]
    assert ranges and all(not found.startswith("bytes=0-") for found in ranges), proxy.requests


def test_stalls_end_after_the_idle_timeout(s3, proxy, key, data, tmp_path):
    proxy.faults = first(2, {"stall": 50_000})
    began = time.monotonic()
    pull(s3.uri(key), tmp_path, MLSERVER_STORAGE_IDLE_TIMEOUT="0.5", **s3.variables(proxy.port))
    assert (tmp_path / "m.bin").read_bytes() == data
    assert time.monotonic() - began < 30


def test_servers_say_when_to_ask_again(s3, proxy, prefix, tmp_path):
    s3.put(f"{prefix}/m.bin", b"hello")
    proxy.faults = first(1, {"status": 503, "headers": {"Retry-After": "1"}})
    began = time.monotonic()
    pull(s3.uri(f"{prefix}/m.bin"), tmp_path, **s3.variables(proxy.port))
    assert (tmp_path / "m.bin").read_bytes() == b"hello"
    assert time.monotonic() - began >= 1


def test_wrong_bytes_are_refused(s3, proxy, key, tmp_path):
    proxy.faults = lambda path, number: {"change": 1000} if number == 2 else None
    printed = pull(s3.uri(key), tmp_path, code=1, **s3.variables(proxy.port))
    assert "does not have the MD5" in printed
    assert not (tmp_path / "m.bin").exists()
    # The wrong bytes are not continued.
    proxy.faults = lambda path, number: None
    pull(s3.uri(key), tmp_path, **s3.variables(proxy.port))


def test_objects_that_change_are_fetched_as_a_whole(s3, proxy, key, data, tmp_path):
    changed = data[::-1]

    def change(_path, number):
        if number == 2:
            with proxy.upstream:
                s3.put(key, changed)

    proxy.faults = change
    pull(s3.uri(key), tmp_path, **s3.variables(proxy.port))
    assert (tmp_path / "m.bin").read_bytes() == changed


def test_objects_that_always_change_are_refused(s3, proxy, key, data, tmp_path):
    versions = iter(range(1000))

    def change(_path, number):
        with proxy.upstream:
            s3.put(key, next(versions).to_bytes(4) + data)

    proxy.faults = change
    assert "changed while it was fetched" in pull(s3.uri(key), tmp_path, code=1, **s3.variables(proxy.port))
    assert not (tmp_path / "m.bin").exists()


def test_pins_refuse_other_content(s3, prefix, tmp_path):
    s3.put(f"{prefix}/m.bin", b"hello")
    digest = hashlib.sha256(b"hello").hexdigest()
    pull(s3.uri(f"{prefix}/m.bin#sha256={digest}"), tmp_path, **s3.variables())
    printed = pull(s3.uri(f"{prefix}/m.bin#sha256={'0' * 64}"), tmp_path / "x", code=1, **s3.variables())
    assert f"does not have the SHA-256 {'0' * 64}" in printed and digest in printed


@pytest.mark.parametrize("kills", [10])
def test_killed_runs_continue(s3, proxy, prefix, data, tmp_path, kills):
    files = {"m.bin": data, **{f"part/{number}": os.urandom(20_000) for number in range(30)}}
    for name, content_of_file in files.items():
        s3.put(f"{prefix}/{name}", content_of_file)
    command = [BINARY, "pull", "--quiet", s3.uri(prefix), tmp_path / "out"]
    variables = environment(**s3.variables(proxy.port))
    rng = random.Random(7)

    def kill_after(limit):
        run = subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL)
        limit += proxy.sent
        wait_until(lambda: proxy.sent > limit or run.poll() is not None, "bytes of the proxy")
        run.send_signal(signal.SIGKILL)
        run.wait()

    for _ in range(kills):
        kill_after(rng.randrange(1, LARGE // kills))
    pull(s3.uri(prefix), tmp_path / "out", **s3.variables(proxy.port))
    assert content(tmp_path / "out") == files
    # Each kill loses what was on its way: at most four files, of which four parts.
    total = sum(map(len, files.values()))
    assert proxy.sent < total + (kills + 1) * 4 * (8 << 20)


def test_interrupted_runs_say_how_to_continue(s3, proxy, prefix, data, tmp_path):
    s3.put(f"{prefix}/m.bin", data)
    proxy.delay = 0.01
    command = [BINARY, "pull", "--quiet", s3.uri(prefix), tmp_path]
    run = subprocess.Popen(command, env=environment(**s3.variables(proxy.port)), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: proxy.sent > 100_000, "bytes of the proxy", run)
    run.send_signal(signal.SIGINT)
    _, printed = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "the same command continues where it stopped" in printed and SECRET not in printed


class Endless:
    """A store whose listing is 64 MiB long."""

    def __init__(self):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(64 << 20))
                self.end_headers()
                with contextlib.suppress(OSError):
                    for _ in range(64):
                        self.wfile.write(b" " * (1 << 20))

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_listings_have_a_limit(s3, tmp_path):
    endless = Endless()
    printed = pull(s3.uri("m"), tmp_path, code=1, **s3.variables(endless.port))
    assert f"the response has more than {32 << 20} bytes" in printed
    endless.server.shutdown()
    endless.server.server_close()
