#!/usr/bin/env python3
"""Sends generated requests to models in Python, and compares what the models see, and what clients receive of their answers.

Usage: payloads.py VENV [--server PATH] [--answers N] [--requests N] [--show N]

VENV is a virtual environment with MLServer 1.7.1. Exits with 1 if there is a difference. See README.md.
"""

import argparse
import ast
import collections
import itertools
import json
import math
import pathlib
import random
import struct
import sys
import tempfile

from cases import Request
from compare import ROOT, Server, parse, short

FOLDER = pathlib.Path(__file__).resolve().parent / "payloads"
MODELS = {"answers": "models.Answers", "seen": "models.Seen"}


def write_models(folder):
    for name, implementation in MODELS.items():
        model = folder / name
        model.mkdir(parents=True)
        (model / "models.py").write_text((FOLDER / "models.py").read_text())
        (model / "model-settings.json").write_text(json.dumps({"name": name, "implementation": implementation}))


def rounded(value, datatype):
    """Returns a number as a reader of its datatype sees it."""
    if isinstance(value, list):
        return [rounded(item, datatype) for item in value]
    if isinstance(value, float) and datatype in ("FP16", "FP32"):
        try:
            return struct.unpack("e" if datatype == "FP16" else "f", struct.pack("e" if datatype == "FP16" else "f", value))[0]
        except OverflowError:
            return value
    return value


def same(left, right):
    """Reports whether two values are the same JSON; `1` and `1.0` are the same number, `true` is not a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def normal(body):
    """Returns an answer in which FP16 and FP32 are rounded to their datatypes."""
    for output in body.get("outputs", []):
        output["data"] = rounded(output["data"], output["datatype"])
    return body


def answer_differences(theirs, ours):
    """Yields the differences of two answers."""
    their_body, our_body = parse(*theirs[1:]), parse(*ours[1:])
    if theirs[0] != ours[0]:
        yield f"status: {theirs[0]} | {ours[0]} {short(our_body)}"
        return
    if not same(normal(their_body), normal(our_body)):
        yield f"body: {json.dumps(their_body)} | {json.dumps(our_body)}"
    for name in ("x-answer", "x-other"):
        if theirs[1].get(name) != ours[1].get(name):
            yield f"header {name}: {theirs[1].get(name)!r} | {ours[1].get(name)!r}"


def infer(model, body, headers=None):
    headers = {"content-type": "application/json", **(headers or {})}
    return Request("", "POST", f"/v2/models/{model}/infer", json.dumps(body).encode(), headers)


def request(number):
    """Returns a request that the model `seen` returns as it sees it."""
    rng = random.Random(number)
    pick, integer = rng.choice, rng.randint
    datatypes = ["BOOL", "UINT8", "UINT64", "INT8", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]

    def element(datatype, odd):
        if odd:
            return pick([None, "word", 2.5, True, False, 1, 0, -1, 300, {"a": 1}, 1e30, 12345678901])
        if datatype == "BOOL":
            return pick([True, False])
        if datatype == "BYTES":
            return pick(["a", "", "é", "日本", "x\ny"])
        if datatype.startswith("FP"):
            return pick([1.1, 0.1, 2.5, 3, -7.125, 0.123456789012])
        return integer(0, 100)

    def nested(shape, make):
        return make() if not shape else [nested(shape[1:], make) for _ in range(shape[0])]

    def parameters():
        return pick([
            {}, {"content_type": "np"}, {"copy": 1, "dict": {"a": 1}, "json": None, "model_dump": "x"}, {"headers": {"a": "b"}}, {"x": [1, {"y": None}]}, {"n": None},
            {"big": 2**70, "float": 1e300}, {"_private": 1, "self": 2, "root": 3, "fields": 4, "keys": 5},
        ])

    inputs = []
    for index in range(pick([1, 1, 1, 2, 3])):
        datatype = datatypes[(number + index) % len(datatypes)]
        oddness = pick([0, 0, 0, 0.3])
        shape = [integer(1, 3), integer(1, 3)][: integer(1, 2)]
        size = math.prod(shape)
        flat = [size]
        form = pick(["flat", "rows", "flat shape", "row shape", "open", "open", "other", "one"])
        data = nested(shape if form in ("rows", "flat shape", "open") else flat, lambda: element(datatype, rng.random() < oddness))
        if form == "open":
            shape = pick([[-1], [-1, shape[-1]], [shape[0], -1]])
        if form == "flat shape":
            shape = flat
        if form == "other":
            shape = pick([[9], [size + 1, 1], [size, 1]])
        if form == "one":
            data, shape = element(datatype, False), pick([[1], [1, 1]])
        one = {"name": pick(["x", "é", "a b"]) + str(index), "shape": shape, "datatype": datatype}
        if rng.random() < 0.6:
            one["parameters"] = parameters() if rng.random() < 0.9 else None
        inputs.append({**one, "data": data})
    body = {"inputs": inputs}
    if rng.random() < 0.7:
        body["id"] = pick(["1", "an id", "é"])
    else:
        body["id"] = "fixed"
    if rng.random() < 0.5:
        body["parameters"] = parameters()
    if rng.random() < 0.5:
        body["outputs"] = pick([[], [{"name": "seen"}], [{"name": "seen", "parameters": {}}], [{"name": "seen", "parameters": {"content_type": "str"}}], None])
    headers = {}
    if rng.random() < 0.4:
        headers["x-text"] = pick(["plain", "caf\u00e9", "\u00fc\u00df"])
    return infer("seen", body, headers)


#: What transports add to the headers that a model sees.
HEADERS_OF_TRANSPORTS = ("host", "content-length", "accept-encoding", "ce-")


def seen(body):
    """Returns the texts of the model `seen` as values, without what belongs to the connection."""
    values = []
    for text in body["outputs"][0]["data"]:
        try:
            values.append(ast.literal_eval(text.replace("nan", "None")))
        except (ValueError, SyntaxError):
            values.append(text)
    if isinstance(values[0], dict):
        parameters = values[0].get("parameters") or {}
        headers = parameters.get("headers")
        if isinstance(headers, dict):
            parameters["headers"] = {name: value for name, value in headers.items() if not name.lower().startswith(HEADERS_OF_TRANSPORTS)}
    return values


def request_differences(theirs, ours):
    their_body, our_body = parse(*theirs[1:]), parse(*ours[1:])
    if theirs[0] != ours[0]:
        yield f"status: {theirs[0]} {short(their_body)} | {ours[0]} {short(our_body)}"
        return
    for left, right in zip(seen(their_body), seen(our_body)):
        if not same(left, right):
            yield f"seen: {left!r} | {right!r}"


def compared(name, make, count, theirs, ours, differences, show):
    """Prints the differences of the answers to generated requests, and returns how many there are, without those on which the original fails."""
    counts = collections.Counter()
    for number in itertools.count():
        if counts["equal"] + counts["different"] == count:
            break
        one = make(number)
        left, right = theirs.send(one), ours.send(one)
        if left[0] >= 500:
            counts["on which the original fails"] += 1
            continue
        found = list(differences(left, right))
        counts["different" if found else "equal"] += 1
        if found and counts["different"] <= show:
            print(f"{name} {number}: {short(one.body, 400)}")
            for text in found:
                print(f"    {text[:1200]}")
    print(f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return counts["different"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=pathlib.Path, help="virtual environment with MLServer 1.7.1")
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "target/debug/mlserver", help="our executable")
    parser.add_argument("--answers", type=int, default=600, help="how many answers to generate")
    parser.add_argument("--requests", type=int, default=200, help="how many requests to generate")
    parser.add_argument("--show", type=int, default=20, help="how many differences to print")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_models(folder / "models")
        environment = arguments.venv.absolute()
        variables = {"MLSERVER_PARALLEL_WORKERS": "0", "MLSERVER_DEBUG": "false", "VIRTUAL_ENV": str(environment)}
        theirs = Server("original", [str(environment / "bin/mlserver")], folder, variables)
        variables = {"VIRTUAL_ENV": str(environment), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}
        ours = Server("ours", [str(arguments.server.absolute())], folder, variables)
        with theirs, ours:
            for server in (theirs, ours):
                if not server.is_ready_in_time():
                    raise SystemExit(f"{server.name} did not become ready:\n{pathlib.Path(server.log.name).read_text()}")
            empty = {"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}

            def answer(number):
                return infer("answers", {"id": str(number), "inputs": [empty]})

            pair = (theirs, ours)
            different = compared("answers", answer, arguments.answers, *pair, answer_differences, arguments.show)
            different += compared("requests", request, arguments.requests, *pair, request_differences, arguments.show)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
