"""The executable, for tests that need it."""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from typing import Dict, Iterator, Sequence

import pytest

#: Read here, because tests run without the variable.
BINARY = os.environ.get("MLSERVER_BIN")

needs_executable = pytest.mark.needs("MLSERVER_BIN")


@contextmanager
def serving(folder: pathlib.Path, arguments: Sequence[str] = ("start", ".")) -> Iterator[str]:
    """Runs `mlserver start` in a folder, and yields the server's host and port once its models are loaded."""
    free_ports: Dict[str, str] = {f"MLSERVER_{name}_PORT": "0" for name in ("HTTP", "GRPC", "METRICS")}
    environment = {
        **os.environ,
        **free_ports,
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_PYTHON_EXECUTABLE": sys.executable,
    }
    log, addresses = folder.parent / "log", folder.parent / "addresses.json"
    command = [str(BINARY), *arguments, "--port-file", str(addresses)]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        end = time.monotonic() + 60
        while not addresses.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield str(json.loads(addresses.read_text())["http"])
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


#: Opens URLs without the proxy of the environment.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
