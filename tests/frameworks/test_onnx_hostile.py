"""Hostile ONNX files are refused, or fail in a process of their own. The server goes on, with little memory."""

import json
import re
import sys
import time

import pytest
from support import need, serve, settings, suite

suite("onnx")
pytest.importorskip("onnx")
import onnx_hostile

IMPLEMENTATION = "mlserver_onnx.OnnxModel"
#: How long a file may take to be loaded and asked. It is 1 s of the server alone; the machine of a test may be busy.
SLOWEST = 10.0
#: How many of the files may take longer than 1 s all the same.
SLOW = 10
#: How much the server may grow by any of the files, in bytes: it may be 12 MB itself, and its messages are read whole.
GROWTH = 400 << 20
#: What a worker for networks may take, in bytes. Its process ends if it needs more.
WORKER_MEMORY = 256 << 20


def peak_memory(process):
    """Returns the most memory that a process had, in bytes."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{process}/status").read())[1]) << 10


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need("onnx")
    folder = tmp_path_factory.mktemp("hostile")
    for name, content in onnx_hostile.files().items():
        (settings(folder / name, IMPLEMENTATION, "./model.onnx", backend="native") / "model.onnx").write_bytes(content)
    honest = settings(folder / "honest", IMPLEMENTATION, "./model.onnx", backend="native")
    (honest / "model.onnx").write_bytes(onnx_hostile.model([onnx_hostile.node("Relu")]))
    limits = {"MLSERVER_LOAD_MODELS_AT_STARTUP": "false", "MLSERVER_WORKER_MEMORY_LIMIT": str(WORKER_MEMORY)}
    started = serve(folder, sys.executable, **limits)
    try:
        yield started
    finally:
        started.stop()


def ask(server, name):
    rows = [float(place) for place in range(onnx_hostile.SHAPE[0] * onnx_hostile.SHAPE[1])]
    tensor = {"name": "x", "datatype": "FP32", "shape": onnx_hostile.SHAPE, "data": rows}
    return server.post(f"/v2/models/{name}/infer", {"inputs": [tensor]})


def test_hostile_files_end_no_server(server):
    assert server.post("/v2/repository/models/honest/load", {}).status == 200
    before, slow, outcomes = peak_memory(server.process.pid), {}, {}
    for name in onnx_hostile.files():
        began = time.monotonic()
        answer = server.post(f"/v2/repository/models/{name}/load", {})
        outcomes[name] = f"refused: {answer.status} {answer.body.decode()[:200]}"
        if answer.status == 200:
            answer = ask(server, name)
            outcomes[name] = f"served: {answer.status} {answer.body.decode()[:200]}"
            server.post(f"/v2/repository/models/{name}/unload", {})
        assert answer.status in range(200, 600), name
        if answer.status != 200:
            assert json.loads(answer.body)["error"], name
        took = time.monotonic() - began
        assert took < SLOWEST, f"{name} took {took:.1f} s: {outcomes[name]}"
        if took > 1:
            slow[name] = round(took, 1)
    print(*(f"{name:<28} {outcome}" for name, outcome in outcomes.items()), f"slow: {slow}", sep="\n")
    print(f"memory: {before >> 20} MiB, at most {peak_memory(server.process.pid) >> 20} MiB")
    assert len(slow) <= SLOW, slow
    assert ask(server, "honest").json()["outputs"][0]["data"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    # The engine of networks may panic: that ends the load or the call, in its own process.
    lines = server.log.read_text().splitlines()
    assert [line for line in lines if "panicked" in line and " worker=" not in line] == []
    assert peak_memory(server.process.pid) - before < GROWTH
    assert sum(outcome.startswith("refused") for outcome in outcomes.values()) > len(outcomes) / 2
