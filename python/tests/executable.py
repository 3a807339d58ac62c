"""The executable, for tests that need it."""

import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import Dict, Iterator, Sequence

import pytest

#: Read here, because tests run without the variable.
BINARY = os.environ.get("MLSERVER_BIN")

needs_executable = pytest.mark.skipif(BINARY is None, reason="needs the executable, whose path is in MLSERVER_BIN")


@contextmanager
def serving(folder: pathlib.Path, arguments: Sequence[str] = ("start", ".")) -> Iterator[str]:
    """Runs the server in a folder, and yields its host and port once it is ready."""
    ports: Dict[str, str] = {f"MLSERVER_{name}_PORT": "0" for name in ("HTTP", "GRPC", "METRICS")}
    environment = {**os.environ, **ports, "MLSERVER_HOST": "127.0.0.1", "MLSERVER_PYTHON_EXECUTABLE": sys.executable}
    log = folder.parent / "log"
    with log.open("w") as output:
        process = subprocess.Popen([str(BINARY), *arguments], cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        end = time.monotonic() + 60
        address = ""
        while not address or not _is_ready(address):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
            found = re.search(r"HTTP server running on http://(\S+)", log.read_text())
            address = found[1] if found else ""
        yield address
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


def _is_ready(address: str) -> bool:
    try:
        with direct.open(f"http://{address}/v2/health/ready", timeout=30):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False


#: Opens URLs without the proxy of the environment.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
