"""The server under test."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Absolute, because servers run in another folder.
BINARY = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
# How long to wait for anything before failing. A passing test never waits this long.
PATIENCE = 60
# Where tests leave pictures for manual review.
SCREENSHOTS = ROOT / "target/screenshots"


class Server:
    """The executable, serving a folder on free ports."""

    def __init__(self, folder, executable=BINARY, **variables):
        assert executable.is_file(), f"there is no {executable}: run `cargo build`, or set MLSERVER_BIN"
        ports = {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_HTTP_PORT": "0", "MLSERVER_METRICS_ENDPOINT": ""}
        ports["MLSERVER_GRPC_PORT"] = "0"
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [executable, "start", folder], cwd=folder, env={**ports, **variables}, stdout=log, stderr=log
            )
        try:
            self.url = self.announced("HTTP")
            # The form that gRPC clients expect.
            self.grpc = self.announced("gRPC").partition("://")[2]
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def wait_for(self, question, patience=PATIENCE):
        """Polls until `question` returns something truthy, and returns it."""
        end = time.monotonic() + patience
        while time.monotonic() < end and self.process.poll() is None:
            if answer := question():
                return answer
            time.sleep(0.01)
        raise AssertionError(f"the server did not come up, or ended:\n{self.log.read_text()}")

    def announced(self, what):
        """Returns the address of a listener from the log."""
        return self.wait_for(lambda: re.search(rf"{what} server running on (https?://\S+)", self.log.read_text()))[1]

    def wait_until_ready(self, patience=PATIENCE):
        self.wait_for(lambda: self.get("/v2/health/ready").status == 200, patience)
        return self

    def get(self, path, **headers):
        return self.request("GET", path, None, headers)

    def post(self, path, body):
        return self.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})

    def request(self, method, path, body, headers):
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return Answer(response)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Answer:
    """A response."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


def quickstart(folder):
    """Copies the models of the quickstart to a folder."""
    for name in ["iris-xgboost", "breast-cancer-lightgbm"]:
        shutil.copytree(ROOT / "examples/quickstart" / name, folder / name)
    return folder


def model(folder, name, **settings):
    """Adds a model to a folder; it answers with its inputs, unless the settings override the implementation."""
    settings = {"name": name, "implementation": "mlserver_identity.IdentityModel", **settings}
    target = folder / str(sum(1 for _ in folder.iterdir()))
    target.mkdir()
    (target / "model-settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window, which cannot reach any other machine."""
    # Not every suite that uses these fixtures has it.
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        assert not os.environ.get("CI"), "chromium and chromium-driver belong to what CI installs"
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1300,1100",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()
