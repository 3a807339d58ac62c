"""The prints and log records of a worker, and its behavior as a process: signals, forks, crashes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List

import pytest
from worker import ANSWER, LOADED, PING, PONG, PREDICT, ROOT, STOP, Worker, frame

MODELS = ["Noisy", "PlainNoisy"]


def call(worker: Worker, name: str) -> None:
    worker.send(frame(PREDICT, 512, {"model": 7, "id": name, "inputs": []}))
    assert worker.receive().kind == ANSWER


def stop(worker: Worker, output: Any) -> List[Dict[str, Any]]:
    """Stops the worker, and returns its records."""
    worker.send(frame(STOP))
    assert worker.process.wait(10) == 0
    output.seek(0)
    lines = output.read().split(b"\n")
    assert lines.pop() == b""
    assert all(line.startswith(b"\x1e") for line in lines), lines
    assert all(len(line) < 64 << 10 for line in lines)
    return [json.loads(line[1:]) for line in lines]


def records(name: str, model: str = "Noisy") -> List[Dict[str, Any]]:
    with tempfile.TemporaryFile() as output, Worker(output=output) as worker:
        assert worker.load(f"noisy_models.{model}").kind == LOADED
        call(worker, name)
        return stop(worker, output)


def messages(name: str, model: str = "Noisy") -> List[str]:
    return [record["message"] for record in records(name, model)]


@pytest.mark.parametrize("model", MODELS)
def test_print_of_several_lines_is_one_record(model: str):
    expected = {"message": '{\n "a": [\n  1,\n  2\n ]\n}', "model": "m", "request": "print_json"}
    assert records("print_json", model) == [expected]


def test_long_print_is_split_between_lines():
    found = messages("print_long")
    assert 1 < len(found) < 20
    assert "\n".join(found) == "\n".join(f"line {number}" for number in range(20_000))


def test_wide_line_is_cut_to_a_valid_record():
    (message,) = messages("print_wide")
    assert message == ("ä\x01" * 50_000)[: len(message)]
    assert len(message) > 10_000


def test_warning_is_one_record():
    (message,) = messages("warn")
    assert message.endswith('UserWarning: careful\n  warnings.warn("careful", stacklevel=1)')


def test_handler_of_a_library_does_not_repeat_records():
    once, separate = records("log_twice")
    assert (once["message"], once["level"], once["logger"]) == ("only once", "WARNING", "library")
    assert (separate["message"], "level" in separate) == ("not propagated", False)


@pytest.mark.parametrize("name", ["unfinished_thread", "unfinished", "flush"])
def test_line_without_newline_is_sent(name: str):
    texts = {"unfinished_thread": "from a thread", "unfinished": "at the end", "flush": "flushed"}
    (record,) = records(name)
    assert record["message"] == texts[name]
    assert name == "unfinished_thread" or record["model"] == "m"


def test_flush_sends_incomplete_line_at_once():
    with Worker() as worker:
        worker.load("noisy_models.Noisy")
        call(worker, "flush")
        assert worker.process.stdout is not None
        assert b"flushed" in worker.process.stdout.readline()


def test_progress_bar_is_one_record():
    assert messages("progress") == ["99%"]


def test_standard_output_has_the_attributes_of_a_text_file():
    assert messages("stream") == ["<stdout> w True <stderr>"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["terminate_program", "terminate_process"])
def test_signals_of_the_server_end_children(name: str, model: str):
    assert f"ended with -{int(signal.SIGTERM)}" in messages(name, model)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_can_print(model: str):
    assert "0 children hung" in messages("fork_while_others_print", model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_leaves_unfinished_lines_to_its_parent():
    found = messages("fork_while_another_thread_writes")
    assert "the child printed" in found
    assert (found.count("unfinished"), found.count("child")) == (1, 1)


@pytest.mark.parametrize("model", MODELS)
def test_forked_child_does_not_answer(model: str):
    with Worker() as worker:
        worker.load(f"noisy_models.{model}")
        call(worker, "fork_and_return")
        worker.send(frame(PING, 513))
        found = worker.receive()
        assert (found.kind, found.head) == (PONG, {"open": []})
        call(worker, "flush")
        worker.send(frame(STOP))
        assert worker.process.wait(10) == 0


@pytest.mark.parametrize("model", MODELS)
def test_abort_writes_the_stacks_of_all_threads(model: str):
    with Worker() as worker:
        worker.load(f"noisy_models.{model}")
        worker.send(frame(PREDICT, 512, {"model": 7, "id": "hang", "inputs": []}))
        while not worker.begun(512):
            time.sleep(0.001)
        time.sleep(0.1)
        worker.process.send_signal(signal.SIGABRT)
        assert worker.process.wait(10) == -signal.SIGABRT
        assert worker.process.stdout is not None
        output = worker.process.stdout.read().decode()
        assert "Fatal Python error: Aborted" in output
        assert "noisy_models.py" in output
        assert "in hang" in output


def test_worker_starts_behind_a_program_that_does_not_exec(tmp_path: pathlib.Path):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    with Worker(interpreter=str(wrapper)) as worker:
        assert worker.load("noisy_models.Noisy").kind == LOADED
        worker.send(frame(STOP))
        assert worker.process.wait(10) == 0


def test_worker_ends_with_its_parent(tmp_path: pathlib.Path):
    # The parent spawns the worker, and dies while user code blocks the worker.
    script = tmp_path / "parent.py"
    script.write_text(
        f"""
import os, sys
sys.path[:0] = [{str(ROOT / "python" / "tests")!r}]
from worker import *
worker = Worker()
worker.__enter__()
worker.load("noisy_models.Noisy")
worker.send(frame(PREDICT, 512, {{"model": 7, "id": "hang", "inputs": []}}))
while not worker.begun(512):
    pass
print(worker.process.pid, flush=True)
os._exit(0)
"""
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    pid, end = int(found.stdout), time.monotonic() + 10
    while _is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_model_folder_is_searched_first_only_by_its_own_load(tmp_path: pathlib.Path):
    """While one model waits in `load`, the imports of another do not see its folder."""
    slow, other = tmp_path / "slow", tmp_path / "other"
    for folder in (slow, other):
        folder.mkdir()
        (folder / "shadowed.py").write_text(f"FOLDER = {folder.name!r}")
    (slow / "slow_model.py").write_text(
        "import asyncio, sys\n"
        "from mlserver import MLModel\n"
        "class Slow(MLModel):\n"
        "    async def load(self):\n"
        "        await asyncio.sleep(0.2)\n"
        "        import shadowed\n"
        "        print(shadowed.FOLDER)\n"
    )
    (other / "other_model.py").write_text(
        "import sys\n"
        "from mlserver import MLModel\n"
        "from mlserver.types import InferenceResponse\n"
        "class Other(MLModel):\n"
        "    async def predict(self, payload):\n"
        "        import importlib.util\n"
        "        print(importlib.util.find_spec('shadowed').origin)\n"
        "        return InferenceResponse(model_name='m', outputs=[])\n"
    )
    with tempfile.TemporaryFile() as output, Worker(output=output) as worker:
        load(worker, 7, 256, "other_model.Other", other)
        assert worker.receive().kind == LOADED
        load(worker, 8, 257, "slow_model.Slow", slow)
        time.sleep(0.1)
        call(worker, "anything")
        assert worker.receive().kind == LOADED
        found = [record["message"] for record in stop(worker, output)]
        assert found == [str(other / "shadowed.py"), "slow"]


def load(worker: Worker, model: int, id: int, implementation: str, folder: pathlib.Path) -> None:
    settings = {"name": "m", "implementation": implementation, "parameters": {}}
    source = os.path.join(folder, "model-settings.json")
    worker.send(frame(2, id, {"model": model, "settings": settings, "source": source}))
