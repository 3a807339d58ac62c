"""Object stores, started by the tests, and a proxy that breaks their answers."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import boto3
import pytest
from azure.storage.blob import BlobServiceClient

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/quickstart/iris-xgboost/model.json"
BINARY = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
# How long to wait for anything before failing.
PATIENCE = 60
# The key that Azurite documents for its only account.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRET = "hush-hush-hush"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def refused():
    """A port that refuses connections. It stays bound, so that no other program gets it meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent():
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield listener.getsockname()[1]


@pytest.fixture(params=["silent", "refused"])
def unreachable(request):
    """A port of a store that cannot be reached."""
    return request.getfixturevalue(request.param)


def wait_until(question, what, process=None):
    """Polls until `question` returns something truthy, and returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := question():
            return answer
        assert process is None or process.poll() is None, f"{what} ended with {process.returncode}"
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen in {PATIENCE} s")


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def running(command, port, log):
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_until(lambda: listens(port), command[0], process)
        yield
    finally:
        process.terminate()
        process.wait()


class S3:
    """A bucket of moto."""

    def __init__(self, port):
        self.port = port
        self.bucket = "models"
        self.client = boto3.client("s3", **self.options(port))
        self.client.create_bucket(Bucket=self.bucket)

    @staticmethod
    def options(port):
        keys = {"aws_access_key_id": "me", "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        return {"endpoint_url": f"http://127.0.0.1:{port}", **keys}

    def put(self, key, data):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def get(self, key):
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def uri(self, key):
        return f"s3://{self.bucket}/{key}"

    def variables(self, port=None):
        endpoint = f"http://127.0.0.1:{port or self.port}"
        return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET}


class Azure:
    """A container of Azurite."""

    def __init__(self, port):
        endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
        account = f"AccountName=devstoreaccount1;AccountKey={AZURITE_KEY}"
        self.connection = f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={endpoint};"
        self.client = BlobServiceClient.from_connection_string(self.connection)
        self.client.create_container("models")

    def put(self, key, data):
        self.client.get_blob_client("models", key).upload_blob(data, overwrite=True)

    def get(self, key):
        return self.client.get_blob_client("models", key).download_blob().readall()

    def uri(self, key):
        return f"az://models/{key}"

    def variables(self):
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection}


class Google:
    """A bucket of fake-gcs-server."""

    def __init__(self, port):
        self.endpoint = f"http://127.0.0.1:{port}"
        self.post("/storage/v1/b?project=test", b'{"name": "models"}', "application/json")

    def post(self, path, data, kind="application/octet-stream"):
        request = urllib.request.Request(self.endpoint + path, data, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            response.read()

    def put(self, key, data):
        name = urllib.parse.quote(key, safe="")
        self.post(f"/upload/storage/v1/b/models/o?uploadType=media&name={name}", data)

    def get(self, key):
        name = urllib.parse.quote(key, safe="")
        with urllib.request.urlopen(f"{self.endpoint}/storage/v1/b/models/o/{name}?alt=media", timeout=PATIENCE) as answer:
            return answer.read()

    def uri(self, key):
        return f"gs://models/{key}"

    def variables(self):
        return {"STORAGE_EMULATOR_HOST": self.endpoint}


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    port = free_port()
    server = Path(sys.executable).parent / "moto_server"
    with running([server, "-H", "127.0.0.1", "-p", str(port)], port, tmp_path_factory.mktemp("moto") / "log"):
        yield S3(port)


def emulator(variable, name, build):
    """Returns the program of an emulator. Without it, tests are skipped, except in CI."""
    program = os.environ.get(variable) or shutil.which(name)
    if not program:
        assert not os.environ.get("CI"), f"CI needs {name}: set {variable}"
        pytest.skip(f"SKIPPED: {name} is missing ({build}, and set {variable})")
    return program


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    server = emulator("AZURITE_BLOB", "azurite-blob", "`npm install azurite`")
    port = free_port()
    options = ["--silent", "--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry"]
    address = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running([server, *options, *address], port, tmp_path_factory.mktemp("azurite") / "log"):
        yield Azure(port)


@pytest.fixture(scope="session")
def gcs(tmp_path_factory):
    server = emulator("FAKE_GCS_SERVER", "fake-gcs-server", "CONTRIBUTING.md builds it")
    port = free_port()
    options = ["-scheme", "http", "-backend", "memory"]
    address = ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with running([server, *options, *address], port, tmp_path_factory.mktemp("gcs") / "log"):
        yield Google(port)


@pytest.fixture(params=["s3", "azure", "gcs"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def cache(tmp_path):
    """The variable of a cache of the test's own."""
    return {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def prefix(request):
    """A prefix of keys that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


class Proxy:
    """A server that passes requests on to another one, and breaks what it answers.

    `faults` are called with the path and the number of the request, and return None or a dictionary: `status` (and `headers`)
    to answer with, `reset`, `stall` or `end` after so many bytes of the body, or `change` a byte of it. `put_faults` are those
    of uploads. `delay` slows each KiB down.
    """

    def __init__(self, port):
        self.target = port
        self.faults = lambda _path, _number: None
        self.put_faults = lambda _path: None
        self.delay = 0.0
        # Held while the other server answers. moto computes a wrong entity tag if an object is read while it is written.
        self.upstream = threading.RLock()
        self.requests = []
        self.connections = 0
        self.authorizations = set()
        self.sent = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                proxy.connections += 1
                super().setup()

            def log_message(self, *_):
                pass

            def do_GET(self):
                proxy.answer(self)

            do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler):
        self.authorizations.add(handler.headers.get("Authorization"))
        is_object = handler.command == "GET" and "list-type" not in handler.path
        number = len(self.requests)
        if is_object:
            self.requests.append(handler.headers.get("Range"))
        fault = (self.faults(handler.path, number) if is_object else None) or {}
        sent = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.command == "PUT":
            fault = self.put_faults(handler.path) or {}
        if status := fault.get("status"):
            handler.send_response(status)
            for name, value in fault.get("headers", {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=PATIENCE)
        with self.upstream:
            connection.request(handler.command, handler.path, sent or None, dict(handler.headers))
            response = connection.getresponse()
            body = response.read()
        if (at := fault.get("change")) is not None:
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                handler.send_header(name, value)
        # Of a HEAD, the length is that of the object.
        length = response.getheader("Content-Length") if handler.command == "HEAD" else len(body)
        if length is not None:
            handler.send_header("Content-Length", length)
        handler.end_headers()
        self.send(handler, body, fault)
        connection.close()

    def send(self, handler, body, fault):
        stops = [fault[kind] for kind in ("reset", "stall", "end") if kind in fault]
        body = body[: stops[0]] if stops else body
        piece = 1024 if self.delay else 1 << 20
        with contextlib.suppress(OSError):
            for start in range(0, len(body), piece):
                handler.wfile.write(body[start : start + piece])
                self.sent += len(body[start : start + piece])
                if self.delay:
                    time.sleep(self.delay)
        if "stall" in fault:
            time.sleep(PATIENCE)
        if "reset" in fault:
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if stops:
            handler.close_connection = True

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def proxy(s3):
    proxy = Proxy(s3.port)
    yield proxy
    proxy.stop()


def environment(**variables):
    """The variables of a run: those of this process without credentials, and others."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "HF_TOKEN_PATH": "/nonexistent", **variables}


def pull(*arguments, code=0, **variables):
    """Runs `mlserver pull`, and returns what it printed. No secret may be in it."""
    command = [BINARY, "pull", *map(str, arguments)]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=5 * PATIENCE)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    for secret in (SECRET, AZURITE_KEY):
        assert secret not in printed
    return printed


def content(folder):
    """Returns the files of a folder by their paths, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def serving(target, logs=None, **variables):
    """Runs a server, whose log is in the folder `logs`: the parent of its folder of models, unless given."""
    port = free_port()
    ports = {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": "0"}
    variables = environment(**{**ports, "MLSERVER_METRICS_ENDPOINT": "", **variables})
    log = (logs or target.parent) / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([BINARY, "start", target], env=variables, stdout=out, stderr=out)
    try:
        yield Server(port, process, log)
    finally:
        process.terminate()
        process.wait()
        assert SECRET not in log.read_text()


class Server:
    def __init__(self, port, process, log):
        self.url, self.process, self.log = f"http://127.0.0.1:{port}", process, log

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def is_ready(self):
        with contextlib.suppress(OSError):
            self.call("/v2/models/iris/ready")
            return True
        return False

    def predict(self):
        tensor = {"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}
        return self.call("/v2/models/iris/infer", {"inputs": [tensor]})["outputs"][0]["data"]


def write_settings(folder, uri, implementation="mlserver_xgboost.XGBoostModel", model="iris"):
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"name": model, "implementation": implementation, "parameters": {"uri": uri}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
