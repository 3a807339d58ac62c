"""Takes the screenshots of the documentation: `MLSERVER_BIN=target/debug/mlserver python docs/.site/screenshots.py`.

It needs Chromium, and serves examples of this repository on free ports.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
#: Each picture: the folder that is served, the page, and the size of the window.
PICTURES = {
    "console": ("examples/quickstart", "/v2/console", (1280, 330)),
    "swagger": ("examples/quickstart", "/v2/models/iris-xgboost/docs", (1000, 900)),
    "graph": ("examples/graph-ensemble", "/v2/models/ensemble/docs", (1200, 250)),
}


#: How long the console's models answer requests before its picture, in seconds.
TRAFFIC = 62
INPUTS = {"iris-xgboost": 4, "breast-cancer-lightgbm": 30}


def send_requests(address):
    """Sends requests to the models of the quickstart, so that the console has something to show."""
    end = time.monotonic() + TRAFFIC
    sent = 0
    while time.monotonic() < end:
        for model, columns in INPUTS.items():
            tensor = {"name": "x", "shape": [1, columns], "datatype": "FP32", "data": [0.5] * columns}
            body = json.dumps({"inputs": [tensor]}).encode()
            headers = {"content-type": "application/json"}
            url = f"{address}/v2/models/{model}/infer"
            with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
                answer.read()
        sent += 1
        # Bursts, so that the lines are not flat.
        time.sleep(0.2 if sent % 40 < 20 else 0.02)


@contextlib.contextmanager
def served(folder):
    """Yields the address of a server of a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        ports = Path(scratch, "ports.json")
        options = ["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        server = subprocess.Popen([BINARY, "start", ROOT / folder, *options, "--port-file", ports], cwd=scratch)
        try:
            end = time.monotonic() + 60
            while not ports.exists():
                assert server.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            yield "http://" + json.loads(ports.read_text())["http"]
        finally:
            server.terminate()
            server.wait(60)


def take(name, folder, page, size):
    """Writes one picture."""
    path = ROOT / "docs/assets" / f"{name}.png"
    with served(folder) as address, tempfile.TemporaryDirectory() as profile:
        if name == "console":
            send_requests(address)
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}",
            "--virtual-time-budget=10000",
            f"--screenshot={path}",
        ]
        subprocess.run([shutil.which("chromium"), *options, address + page], check=True, timeout=120)
    assert path.stat().st_size < 100_000, path


if __name__ == "__main__":
    for name, (folder, page, size) in PICTURES.items():
        take(name, folder, page, size)
