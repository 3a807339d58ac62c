"""Signal handlers and loggers of models work as on the main thread of a program of their own."""

import os
import signal
import tempfile
from typing import Any, List

import pytest
from test_worker_output import stop
from worker import ANSWER, ERROR, LOADED, PREDICT, STOP, Worker, frame


def ask(worker: Worker, name: str, model: int) -> List[str]:
    worker.send(frame(PREDICT, 512, {"model": model, "id": name, "inputs": []}))
    answer = worker.receive()
    assert answer.kind == ANSWER, answer.head
    return str(answer.head["outputs"][0]["name"]).split(";") if answer.head["outputs"] else []


@pytest.fixture(params=["Handling", "PlainHandling"])
def worker(request: Any) -> Any:
    """A worker with two models, of which the second does not run on the main thread."""
    with tempfile.TemporaryFile() as output, Worker(output=output) as started:
        for model in (7, 8):
            loaded = started.load(f"signal_models.{request.param}", model=model, name=f"m{model}")
            assert loaded.kind == LOADED, loaded.head
        yield started
        started.send(frame(STOP))
        assert started.process.wait(10) == 0


@pytest.mark.parametrize("model", [7, 8])
def test_handlers_work_in_each_model(worker, model):
    assert ask(worker, "raise", model) == ["SIGUSR2 on True"]
    assert ask(worker, "alarm", model) == ["SIGALRM on True"]
    assert ask(worker, "wrong", model)[1:] == ["OSError", "TypeError", "ValueError"]


@pytest.mark.parametrize("model", [7, 8])
def test_handlers_for_signals_of_the_server_do_not_end_the_worker(worker, model):
    assert ask(worker, "server", model) == ["SIGTERM on True"]
    os.kill(worker.process.pid, signal.SIGTERM)
    assert ask(worker, "none", model) == ["SIGTERM on True"]


def test_forked_child_has_the_default_action(worker):
    assert ask(worker, "fork", 8) == [str(int(signal.SIGTERM))]


def test_handler_that_raises_outside_calls_does_not_end_the_worker():
    with tempfile.TemporaryFile() as output, Worker(output=output) as started:
        for model in (7, 8):
            started.load("signal_models.Handling", model=model)
        started.send(frame(PREDICT, 512, {"model": 8, "id": "restore", "inputs": []}))
        assert started.receive().kind == ANSWER
        records = stop(started, output)
    assert any("the handler failed" in record["message"] for record in records), records


def test_handler_that_raises_ends_the_call_on_the_main_thread():
    with Worker() as started:
        started.load("signal_models.Handling")
        started.send(frame(PREDICT, 512, {"model": 7, "id": "restore", "inputs": []}))
        failed = started.receive()
        assert (failed.kind, failed.head["message"]) == (ERROR, "builtins.RuntimeError: the handler failed")
        assert ask(started, "none", 7) == [""]


@pytest.mark.parametrize("model", [7, 8])
def test_loop_handles_signals_and_programs(model):
    with Worker() as started:
        for each in (7, 8):
            started.load("signal_models.Handling", model=each)
        assert ask(started, "loop", model) == ["loop"]
        assert ask(started, "subprocess", model) == ["1"]


def test_loggers_of_models_log_once():
    with tempfile.TemporaryFile() as output, Worker(output=output) as started:
        loaded = started.load("signal_models.Logging")
        assert loaded.kind == LOADED, loaded.head
        ask(started, "r", 7)
        messages = [record["message"] for record in stop(started, output)]
    assert [message for message in messages if "asyncio" not in message and "selector" not in message] == [
        "begun",
        "info of the root",
        "asked",
        "forced",
    ]
