"""What models in the wild do works, or ends only the call that does it."""

import tempfile
import time
from typing import Any

import pytest
from worker import ANSWER, CALL, ERROR, LOADED, METRICS, PREDICT, REPLY, STOP, Worker, frame


def request(id: str, model: int = 7) -> bytes:
    return frame(PREDICT, 512, {"model": model, "id": id, "inputs": []})


@pytest.mark.parametrize(
    "name", ["PartialModel", "PlainPartialModel", "ObjectModel", "AsyncObjectModel", "LatePredict", "LatePlainPredict"]
)
def test_predict_may_be_any_callable(name):
    with Worker() as worker:
        loaded = worker.load(f"habit_models.{name}")
        assert loaded.kind == LOADED, loaded.head
        assert loaded.head["plain"] is (name in ("PlainPartialModel", "ObjectModel", "LatePlainPredict"))
        worker.send(request("r"))
        answer = worker.receive()
        assert answer.kind == ANSWER, answer.head
        assert answer.tail[0] == 2


@pytest.mark.needs("numpy")
@pytest.mark.parametrize("name", ["TupleHints", "TextHints", "HintsInParentheses", "OneInTuple"])
def test_hints_may_be_tuples_and_text(name):
    with Worker() as worker:
        loaded = worker.load(f"habit_models.{name}")
        assert loaded.kind == LOADED, loaded.head
        tensor = {"name": "x", "datatype": "INT64", "shape": [1], "size": 8}
        worker.send(frame(PREDICT, 512, {"model": 7, "id": "r", "inputs": [tensor]}, (42).to_bytes(8, "little")))
        answer = worker.receive()
        assert answer.kind == ANSWER, answer.head
        assert len(answer.head["outputs"]) == (1 if name == "OneInTuple" else 2)
        head = {"model": 7, "handler": "tuple", "method": "POST", "path": "/tuple/3", "path_params": {"number": "3"}}
        worker.send(frame(CALL, 513, {**head, "query": "", "headers": []}))
        reply = worker.receive()
        assert reply.kind == REPLY, reply.head
        assert (reply.head["status"], reply.tail) == (200, b'[3,"x"]')


def test_streams_may_be_replaced():
    with tempfile.TemporaryFile() as output, Worker(output=output) as worker:
        loaded = worker.load("habit_models.Streams")
        assert loaded.kind == LOADED, loaded.head
        worker.send(request("r"))
        assert worker.receive().kind == ANSWER
        worker.send(request("r"))
        assert worker.receive().kind == ANSWER
        worker.send(frame(STOP))
        assert worker.process.wait(10) == 0
        output.seek(0)
        text = output.read()
    assert text == b"printed\nerror\noriginal\n" * 2


@pytest.mark.parametrize(("name", "count"), [("million", 1_000_000), ("thread", 1)])
def test_observations_come_before_the_answer(name, count):
    with Worker() as worker:
        worker.load("habit_models.Habits")
        worker.send(request(name))
        found = 0
        while True:
            received = worker.receive()
            if received.kind != METRICS:
                break
            found += len(received.head["observed"])
        assert received.kind == ANSWER
        assert found == count


@pytest.mark.parametrize("name", ["longx", "long\n", "longa\n", "longä", "long\x00"])
def test_long_texts_end_the_call_at_once(name):
    with Worker() as worker:
        worker.load("habit_models.Habits")
        begin = time.monotonic()
        worker.send(request(name))
        failed = worker.receive()
        assert failed.kind == ERROR
        assert time.monotonic() - begin < 5
        assert len(failed.head["message"]) <= 64 << 10
        assert len(failed.whole) < 1 << 20


@pytest.mark.parametrize("model", [7, 8])
@pytest.mark.parametrize("name", ["cancel", "cancel_all"])
def test_cancelling_all_tasks_ends_only_calls(name, model):
    with Worker() as worker:
        for each in (7, 8):
            worker.load("habit_models.Habits", model=each)
        worker.send(frame(PREDICT, 513, {"model": model, "id": "wait", "inputs": []}))
        time.sleep(0.2)
        worker.send(request(name, model))
        ended: Any = {each.id: each.kind for each in (worker.receive(), worker.receive())}
        assert ended == {512: ANSWER if name == "cancel" else ERROR, 513: ERROR}
        for each in (7, 8):
            worker.send(request("r", each))
            assert worker.receive().kind == ANSWER
        assert worker.load("habit_models.Habits", model=9).kind == LOADED
        worker.send(frame(STOP))
        assert worker.process.wait(10) == 0
