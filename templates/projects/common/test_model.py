"""Serves this project on free ports, sends `request.json`, and compares the outputs with those in `answer.json`.

    python -m unittest

Uses the `mlserver` on the PATH; set the environment variable MLSERVER to use another one. Needs no other packages.
"""

import json
import os
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: How long to wait for the server and for answers, in seconds.
TIMEOUT = 300


class Server:
    """A server that runs during a `with` block."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.log = tempfile.TemporaryFile("w+")
        ports = Path(self.folder.name) / "ports.json"
        free = ["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        self.process = subprocess.Popen(
            [os.environ.get("MLSERVER", "mlserver"), "start", str(HERE), *free, "--port-file", str(ports)],
            cwd=HERE,
            stdout=self.log,
            stderr=self.log,
        )
        try:
            # The server writes the file once the model is loaded.
            self.wait_for(ports.exists)
            self.url = "http://" + json.loads(ports.read_text())["http"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT)
        self.log.close()
        self.folder.cleanup()

    def text(self):
        """Returns the server's log so far."""
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, condition):
        """Waits until `condition()` is true and returns its value. Fails if the server exits first."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end and self.process.poll() is None:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError("the server did not become ready:\n" + self.text())

    def post(self, path, body):
        """Sends JSON and returns the text of the answer."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.read().decode()


def read(name):
    """Reads a JSON file of the project."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def model_path():
    """Returns the path below which the model answers."""
    return "/v2/models/" + read("model-settings.json")["name"]


class TestModel(unittest.TestCase):
    """The model answers as recorded."""

    def test_the_answer_is_the_recorded_one(self):
        with Server() as server:
            answer = json.loads(server.post(model_path() + "/infer", read("request.json")))
        recorded = read("answer.json")["outputs"]
        outputs = answer["outputs"]
        self.assertEqual([output["name"] for output in outputs], [output["name"] for output in recorded])
        for output, expected in zip(outputs, recorded):
            with self.subTest(output["name"]):
                self.assertEqual((output["datatype"], output["shape"]), (expected["datatype"], expected["shape"]))
                self.assertEqual(len(output["data"]), len(expected["data"]))
                for found, wanted in zip(output["data"], expected["data"]):
                    if isinstance(wanted, float):
                        self.assertAlmostEqual(found, wanted, places=5)
                    else:
                        self.assertEqual(found, wanted)


if __name__ == "__main__":
    unittest.main()
