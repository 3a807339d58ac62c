"""Pipelines of transformers on a GPU; machines without one skip them."""

import os
import sys

import pytest
from support import need, reasons, serve, suite
from test_huggingface import TEXTS, ask, close, described

suite("huggingface")
need("huggingface")
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)


# The folders of the driver's libraries on some machines.
DRIVER = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def free_memory():
    return torch.cuda.mem_get_info(0)[0]


def test_gpu_answers_match_the_cpu(tmp_path):
    """By number and by name of the device, alone and in batches."""
    before = free_memory()
    devices = {"cpu": None, "number": 0, "digits": "0", "name": "cuda:0", "any": "cuda"}
    for name, device in devices.items():
        batching = {"max_batch_size": 8, "max_batch_time": 0.5}
        described(tmp_path, name, extra={} if device is None else {"device": device}, **batching)
    server = serve(tmp_path, sys.executable, **DRIVER)
    try:
        server.wait_until_ready()
        # The memory that CUDA itself uses per process.
        assert before - free_memory() > 100 << 20, "nothing is on the GPU"
        shape, expected = ask(server, "cpu", "args", *TEXTS)
        assert len({answer["score"] for answer in expected}) == len(TEXTS)
        for name in devices:
            found = ask(server, name, "args", *TEXTS)
            assert found[0] == shape
            assert all(map(close, found[1], expected)), name
            assert close(ask(server, name, "args", TEXTS[0])[1][0], expected[0]), name
    finally:
        server.stop()


def test_missing_gpu_fails_the_load(tmp_path):
    described(tmp_path, "missing", extra={"device": "cuda:99"})
    (reason,) = reasons(tmp_path, sys.executable, **DRIVER).values()
    assert "99" in reason or "device" in reason, reason
