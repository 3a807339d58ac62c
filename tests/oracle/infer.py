#!/usr/bin/env python3
"""Runs MLServer 1.7.1's `mlserver infer` and ours on the same requests, each against both servers, and compares the lines.

Usage: infer.py VENV [--server PATH]

Exits with 1 when a line differs in what nobody intended. What is intended is in `docs/compatibility.md`: the order of the
output, the shape `[N,1]` where the server sent `[N]`, the double behind an FP32, and how errors are worded.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from cases import Request
from compare import PATIENCE, ROOT, Server, float32

IDENTITY = """
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Identity(MLModel):
    async def predict(self, payload):
        outputs = [
            ResponseOutput(name=one.name, shape=one.shape, datatype=one.datatype, data=one.data) for one in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""


def tensor(name, shape, datatype, data, **more):
    return {"name": name, "shape": shape, "datatype": datatype, "data": data, **more}


# Requests of many forms, one in each line. Missing ids are made up. The original mixes such requests up in a batch, so they are
# sent one by one.
ALONE = [
    {"id": "integers", "inputs": [tensor("x", [1, 3], "INT32", [1, -2, 3])]},
    {"id": "floats", "inputs": [tensor("x", [2, 2], "FP32", [[0.1, 1e20], [-0.0, 3.25]])]},
    {"id": "doubles", "inputs": [tensor("x", [1, 2], "FP64", [0.1, 1 / 3])]},
    {"id": "unsigned", "inputs": [tensor("x", [1, 2], "UINT64", [0, 2**64 - 1])]},
    {"id": "booleans", "inputs": [tensor("x", [1, 2], "BOOL", [True, False])]},
    {"id": "text", "inputs": [tensor("t", [2, 1], "BYTES", ["a", "é \"b\""])]},
    {"id": "two", "inputs": [tensor("x", [1, 1], "INT64", [7]), tensor("y", [1, 2], "FP32", [1.5, 2.5])]},
    {"inputs": [tensor("x", [1, 3], "INT32", [4, 5, 6])]},
    {"id": "chosen", "inputs": [tensor("x", [1, 1], "INT64", [7])], "outputs": [{"name": "x"}]},
]
# Requests that differ only in their rows.
ALIKE = [
    {"id": f"row {row}", "inputs": [tensor("x", [1 + row % 2, 2], "FP32", [[row + 0.1, -row]] * (1 + row % 2))]}
    for row in range(10)
]
# Lines that neither can send, and a part of both error messages.
BAD = [json.dumps({"id": "type", "inputs": [tensor("x", [1], "INT99", [1])]})]


def models(folder):
    model = folder / "models" / "identity"
    model.mkdir(parents=True)
    (model / "models.py").write_text(IDENTITY)
    (model / "model-settings.json").write_text(json.dumps({"name": "identity", "implementation": "models.Identity"}))
    (folder / "models" / "settings.json").write_text(json.dumps({"debug": False, "parallel_workers": 0}))


def ready(server):
    """Waits until the model is ready."""
    deadline = time.monotonic() + PATIENCE
    while server.send(Request("", "GET", "/v2/health/ready"))[0] != 200:
        if time.monotonic() > deadline:
            sys.exit(f"{server.name} is not ready")
        time.sleep(0.1)


def answers(program, port, folder, lines, size):
    """Returns the lines that a client writes, by index."""
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("\n".join(lines) + "\n")
    command = [program, "infer", "-u", f"127.0.0.1:{port}", "-m", "identity", "-i", source, "-o", target, "-s", str(size)]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    if not target.exists():
        sys.exit(f"{program} wrote nothing: {ran.stdout}\n{ran.stderr}")
    found = [json.loads(line) for line in target.read_text().splitlines()]
    return {answer["parameters"]["batch_index"]: answer for answer in found}, ran.returncode


def plain(answer, request):
    """Returns an answer without generated values and without intended differences."""
    answer = json.loads(json.dumps(answer))
    answer["parameters"].pop("inference_id", None)
    if "id" not in request:
        answer.pop("id", None)
    for output in answer.get("outputs", []):
        # NumPy treats a list as a column.
        if len(output["shape"]) == 1:
            output["shape"].append(1)
        if output["datatype"] == "FP32":
            # One prints the double, the other the shortest form of the number.
            output["data"] = list(map(float32, output["data"]))
        # That codec adds its own content type, and the transport adds the data's.
        output.pop("parameters", None)
    if "error" in answer:
        answer = {"parameters": answer["parameters"], "error": answer["error"]["status"]}
    return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("venv", type=pathlib.Path)
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "target/debug/mlserver")
    args = parser.parse_args()
    original = args.venv.absolute() / "bin" / "mlserver"
    ours = args.server.absolute()
    runs = [(ALONE, 1), (ALIKE, 1), (ALIKE, 4)]
    differences = compared = 0
    for server_name, server in (("MLServer", original), ("ours", ours)):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            models(folder)
            python = {"MLSERVER_PYTHON_EXECUTABLE": str(args.venv.absolute() / "bin" / "python")} if server == ours else {}
            with Server(server_name.lower(), [str(server)], folder, python) as running:
                ready(running)
                for requests, size in runs:
                    lines = [*map(json.dumps, requests), *BAD]
                    theirs, code = answers(original, running.port, folder, lines, size)
                    mine, my_code = answers(ours, running.port, folder, lines, size)
                    if (code, my_code) != (0, 4):
                        print(f"{server_name}, {size} in a batch: ended with {code} and {my_code}, expected 0 and 4")
                        differences += 1
                    for index, line in enumerate(lines):
                        request = json.loads(line)
                        pair = [plain(found[index], request) if index in found else None for found in (theirs, mine)]
                        compared += 1
                        if pair[0] != pair[1]:
                            differences += 1
                            print(f"{server_name}, {size} in a batch, {line}\n  original: {pair[0]}\n  ours:     {pair[1]}")
    print(f"{compared} lines compared, {differences} differ")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
