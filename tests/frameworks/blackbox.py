"""Models for black-box explainers: a server of the V2 protocol that answers by simple rules."""

import json
import pathlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List

#: Placeholder in settings for the address of the models.
ADDRESS = "http://blackbox"


def flowers(rows: List[List[float]]) -> List[List[float]]:
    """Returns the probabilities of three classes, which depend on the last two of four numbers."""
    return [[0.8, 0.1, 0.1] if row[2] < 2.5 else [0.1, 0.8, 0.1] if row[3] < 1.7 else [0.1, 0.2, 0.7] for row in rows]


class _Handler(BaseHTTPRequestHandler):
    """Answers for the models, and records the requests."""

    protocol_version = "HTTP/1.1"
    asked: List[Dict[str, Any]] = []

    def log_message(self, *args: Any) -> None:
        """Logs nothing."""

    def do_GET(self) -> None:
        self._answer(
            {"name": "flowers", "platform": "", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"headers": dict(self.headers), "body": body})
        tensor = body["inputs"][0]
        if "refuse" in self.path:
            self._answer({"error": "no"}, 503)
            return
        if tensor["datatype"] == "BYTES":
            told = [int("good" in text) for text in tensor["data"]]
            output = {"name": "label", "datatype": "INT64", "shape": [len(told), 1], "data": told}
        else:
            # A single row may come as a column.
            numbers = _flat(tensor["data"])
            size = 4 if len(tensor["shape"]) < 3 else len(numbers) // tensor["shape"][0]
            rows = flowers([numbers[start : start + size] for start in range(0, len(numbers), size)])
            output = {"name": "predict", "datatype": "FP64", "shape": [len(rows), 3], "data": _flat(rows)}
        self._answer({"model_name": "flowers", "id": body.get("id"), "outputs": [output]})

    def _answer(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _flat(values: Any) -> List[float]:
    return [number for each in values for number in _flat(each)] if isinstance(values, list) else [values]


@contextmanager
def serving(folder: pathlib.Path) -> Iterator[List[Dict[str, Any]]]:
    """Serves the models, writes their address to the settings in a folder, and yields the requests."""
    _Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        for settings in folder.glob("*/model-settings.json"):
            text = settings.read_text().replace(ADDRESS, f"http://127.0.0.1:{server.server_port}")
            settings.write_text(text)
        yield _Handler.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
