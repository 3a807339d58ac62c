"""Servers that run the same models: this one, whose models have KServe's package or not, and KServe's own."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import venv
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARY = Path(os.environ.get("MLSERVER_BIN", HERE.parents[1] / "target/debug/mlserver")).resolve()
#: A passing test never waits this long.
PATIENCE = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answer(base, path, body=None, method=None, **headers):
    """Returns status, headers and body of a response."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(base + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def start(command, folder, base, log, names, **variables):
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **variables}, stdout=log.open("w"), stderr=subprocess.STDOUT
    )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            if all(answer(base, f"/v1/models/{name}")[0] == 200 for name in names):
                return process
        except OSError:
            pass
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the server did not start:\n{log.read_text()}")


def python_without_kserve(folder):
    """Makes an environment that has all packages of this one but KServe's, and returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith("kserve"):
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def python_of(kind, tmp_path_factory):
    """Returns an interpreter with KServe's package ("kserve"), or without it ("without_kserve")."""
    if kind == "kserve":
        return sys.executable
    python = str(python_without_kserve(tmp_path_factory.mktemp("environment") / "venv"))
    missing = subprocess.run([python, "-c", "import sklearn, kserve"], capture_output=True, text=True)
    assert "No module named 'kserve'" in missing.stderr, missing.stderr
    return python


@contextmanager
def serving(kind, target, names, *arguments, python=sys.executable, **variables):
    """Serves a script, or a folder of models, with this server ("ours") or that of KServe. Yields URL and gRPC address."""
    http, grpc = free_port(), free_port()
    base = f"http://127.0.0.1:{http}"
    if kind == "ours":
        command = [str(BINARY), "start", str(target), *arguments]
        variables["MLSERVER_HOST"] = "127.0.0.1"
        variables["MLSERVER_HTTP_PORT"] = str(http)
        variables["MLSERVER_GRPC_PORT"] = str(grpc)
        variables["MLSERVER_METRICS_PORT"] = "0"
        variables["MLSERVER_PYTHON_EXECUTABLE"] = python
        # KServe's server shows it to all models.
        variables["MLSERVER_FORWARD_HEADERS"] = '["authorization"]'
    else:
        command = [python, str(target), "--http_port", str(http), "--grpc_port", str(grpc), *arguments]
    folder = target if target.is_dir() else target.parent
    log = folder / f"{kind}-{http}.log"
    process = start(command, folder, base, log, names, **variables)
    try:
        yield base, f"127.0.0.1:{grpc}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def both(servers, path, body=None, method=None, **headers):
    """Returns the statuses and the parsed bodies of both servers."""
    found = [answer(base, path, body, method, **headers) for base, _ in servers]
    return [(status, json.loads(text) if text else None) for status, _, text in found]
