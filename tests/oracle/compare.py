#!/usr/bin/env python3
"""Sends the same requests to MLServer 1.7.1 and to this server, and prints each difference.

Usage: compare.py VENV [--server PATH] [--workers N] [--goldens LIBRARY-VERSION ...] [--all]

Exits with 1 when there is a unintended difference. See README.md.
"""

import argparse
import gzip
import http.client
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from cases import CE, Request, infer, quickstart, repository

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/goldens"))

from archive import unpack  # noqa: E402

HEADERS = ["content-type", "content-encoding", "vary", "location", "allow", *CE]
# Scores of one model may differ by rounding between builds of its library.
TOLERANCE = 1e-6
PATIENCE = 120
COMPRESSED_FROM = 500


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A running server; killed at the end of a `with` block."""

    def __init__(self, name, command, folder, variables):
        self.name, self.port = name, free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": str(self.port),
            "MLSERVER_GRPC_PORT": str(free_port()),
            "MLSERVER_METRICS_PORT": str(free_port()),
            **variables,
        }
        self.log = open(folder / f"{name}.log", "wb")
        models = folder / "models"
        self.process = subprocess.Popen(
            [*command, "start", str(models)], cwd=folder, env=environment, stdout=self.log, stderr=subprocess.STDOUT
        )

    def __enter__(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.send(Request("", "GET", "/v2/health/live"))[0] == 200:
                    return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise SystemExit(f"{self.name} did not start:\n{pathlib.Path(self.log.name).read_text()}")

    def is_ready_in_time(self):
        deadline = time.monotonic() + PATIENCE
        while self.send(Request("", "GET", "/v2/health/ready"))[0] != 200:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def send(self, request):
        """Returns the status, headers and body of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(request.method, request.path, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            if request.body or request.method == "POST":
                connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read()
        finally:
            connection.close()


def float32(value):
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf


def numbers_agree(left, right, datatype):
    if left is None or right is None or isinstance(left, (str, bool)) or isinstance(right, (str, bool)):
        return left == right
    if datatype == "FP32":
        left, right = float32(left), float32(right)
    return left == right or (datatype.startswith("FP") and math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=0))


def differences(theirs, ours, path=""):
    """Yields the differences of two JSON values, including the order of keys."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(theirs) != list(ours):
            yield f"{path or 'body'}: keys {list(theirs)} | {list(ours)}"
        for key in theirs.keys() & ours.keys():
            if key == "data" and "datatype" in theirs:
                left, right = theirs["data"], ours["data"]
                if len(left) != len(right):
                    yield f"{path}.data: {len(left)} elements | {len(right)} elements"
                    continue
                for index, pair in enumerate(zip(left, right)):
                    if not numbers_agree(*pair, theirs["datatype"]):
                        yield f"{path}.data[{index}]: {pair[0]!r} | {pair[1]!r}"
            else:
                yield from differences(theirs[key], ours[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (left, right) in enumerate(zip(theirs, ours)):
            yield from differences(left, right, f"{path}[{index}]")
    elif theirs != ours:
        yield f"{path or 'body'}: {short(theirs)} | {short(ours)}"


def short(value, limit=160):
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= limit else text[:limit] + "…"


def parse(headers, body):
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    if body and headers.get("content-type", "").startswith("application/json"):
        body = json.loads(body)
        # An index: the original lists models in the order of the file system.
        if isinstance(body, list):
            body.sort(key=lambda entry: (entry["name"], entry.get("version", "")))
    return body


def generated_id(request):
    try:
        return not json.loads(request.body).get("id")
    except (ValueError, AttributeError, UnicodeDecodeError):
        return True


def compare(request, theirs, ours):
    """Yields each difference as its part and a description."""
    if theirs[0] != ours[0]:
        yield "status", f"{theirs[0]} | {ours[0]}"
    their_body, our_body = parse(*theirs[1:]), parse(*ours[1:])
    their_headers, our_headers = dict(theirs[1]), dict(ours[1])
    if generated_id(request) and b'"id":""' not in request.body:
        for body in (their_body, our_body):
            if isinstance(body, dict) and "id" in body:
                body["id"] = "generated"
        for headers in (their_headers, our_headers):
            for name in ("ce-id", "ce-requestid"):
                if name in headers:
                    headers[name] = "generated"
    # FP32 takes fewer digits as FP32, so a response may be below the length from which it is compressed.
    if (len(theirs[2]) < COMPRESSED_FROM) != (len(ours[2]) < COMPRESSED_FROM):
        their_headers.pop("vary", None)
        our_headers.pop("vary", None)
    for name in HEADERS:
        if their_headers.get(name, "").lower() != our_headers.get(name, "").lower():
            yield name, f"{their_headers.get(name)} | {our_headers.get(name)}"
    if isinstance(their_body, bytes) or isinstance(our_body, bytes):
        if their_body != our_body:
            yield "body", f"{short(their_body)} | {short(our_body)}"
    else:
        for difference in differences(their_body, our_body):
            yield "body", difference


def goldens(names, models, scratch):
    """Adds the models of golden cases to the folder and returns their requests."""
    requests = []
    for name in names:
        unpack(ROOT / f"tests/goldens/trees/{name}.tar.gz", scratch / name)
        for path in sorted((scratch / name).glob("*.case.json")):
            case = json.loads(path.read_text())
            family = {"xgboost": "xgboost.XGBoostModel", "lightgbm": "lightgbm.LightGBMModel"}[case["library"]]
            for file in case["models"]:
                model = f"{name}-{file}".replace(".", "-")
                folder = models / model
                folder.mkdir()
                shutil.copy(path.parent / file, folder / file)
                settings = {"name": model, "implementation": f"mlserver_{family}", "parameters": {"uri": f"./{file}"}}
                (folder / "model-settings.json").write_text(json.dumps(settings))
                body = {"inputs": [{"name": "x", **case["input"]}]}
                if case["expect"].get("predict_proba") and case["library"] == "xgboost":
                    body["outputs"] = [{"name": "predict"}, {"name": "predict_proba"}]
                text = json.dumps(body).replace("NaN", "null")
                requests.append(infer(f"golden {model}", text, f"/v2/models/{model}/infer"))
    return requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=pathlib.Path, help="virtual environment with MLServer 1.7.1")
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "target/dist/mlserver", help="our executable")
    parser.add_argument("--workers", default="0", help="parallel_workers of the original (default 0)")
    parser.add_argument("--goldens", nargs="*", default=[], metavar="NAME", help="archives of tests/goldens/trees to compare too, such as xgboost-3.2.0")
    parser.add_argument("--all", action="store_true", help="print intended differences too")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        models = folder / "models"
        shutil.copytree(ROOT / "examples/quickstart", models)
        requests = quickstart(ROOT / "examples/quickstart")
        golden = goldens(arguments.goldens, models, folder / "goldens")
        original = [str(arguments.venv.absolute() / "bin/mlserver")]
        theirs = Server(
            "original", original, folder, {"MLSERVER_PARALLEL_WORKERS": arguments.workers, "MLSERVER_LOAD_MODELS_AT_STARTUP": "false", "MLSERVER_DEBUG": "false"}
        )
        ours = Server("ours", [str(arguments.server.absolute())], folder, {"MLSERVER_EXIT_ON_LOAD_FAILURE": "false"})
        with theirs, ours:
            # One model that cannot be loaded would stop the original, so each is loaded separately.
            unloadable = set()
            for settings in sorted(models.rglob("model-settings.json")):
                name = json.loads(settings.read_text())["name"]
                status, _, body = theirs.send(Request("", "POST", f"/v2/repository/models/{name}/load"))
                if status != 200:
                    unloadable.add(f"golden {name}")
                    if arguments.all:
                        print(f"the original cannot load {name}: {status} {short(body)}")
            print(f"{len(unloadable)} models which the original cannot load are left out")
            golden = [request for request in golden if request.name not in unloadable]
            ours.is_ready_in_time()
            return report([*requests, *golden, *repository()], theirs, ours, arguments.all)


def report(requests, theirs, ours, show_all):
    counts = {"equal": 0, "intended": 0, "unexpected": 0}
    for request in requests:
        found = list(compare(request, theirs.send(request), ours.send(request)))
        unexpected = [part for part, _ in found if part not in request.intended]
        kind = "unexpected" if unexpected else "intended" if found else "equal"
        counts[kind] += 1
        if kind == "equal" and request.intended:
            print(f"{request.name}: a difference is noted, but there is none")
        if kind == "unexpected" or (show_all and found):
            print(f"{request.name}: {request.method} {request.path} {short(request.body, 100)}")
            for part, text in found[:12]:
                why = request.intended.get(part)
                print(f"    {part}: {text}" + (f"  ({why})" if why else "  <-- unexpected"))
    print(f"{len(requests)} requests: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["unexpected"] else 0


if __name__ == "__main__":
    sys.exit(main())
