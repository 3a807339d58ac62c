"""Each call of a worker ends with exactly one final frame, whatever user code raises, and the next one is answered."""

import asyncio
import re
import socket
import time
from typing import Any, Dict, List, Tuple

import pytest
from mlserver._worker.connection import Connection
from mlserver._worker.frames import FrameKind
from trouble_models import TROUBLES
from worker import (
    ANSWER,
    CALL,
    CANCEL,
    CREDIT,
    DONE,
    END,
    ERROR,
    EXPOSITION,
    ITEM,
    LOADED,
    METRICS,
    PING,
    PONG,
    PREDICT,
    REPLY,
    SCRAPE,
    STOP,
    STREAM,
    UNLOAD,
    Frame,
    Worker,
    frame,
)

NUMBER = (1).to_bytes(8, "little")
FINAL = {LOADED, DONE, REPLY, ERROR, END, PONG}


def request(id: str, model: int = 7) -> Dict[str, Any]:
    return {"model": model, "id": id, "inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "size": 8}]}


def predict(worker: Worker, id: int, name: str, model: int = 7) -> Frame:
    """Calls `predict`, and returns its final frame."""
    worker.send(frame(PREDICT, id, request(name, model), NUMBER))
    return final(worker, id)


def final(worker: Worker, id: int) -> Frame:
    """Returns the final frame of a call, and checks that no other one follows."""
    found = [received for received in until_pong(worker, id) if received.kind != METRICS]
    assert len(found) == 1, found
    return found[0]


def until_pong(worker: Worker, id: int) -> List[Frame]:
    """Receives until the call has ended and a ping after that is answered."""
    frames: List[Frame] = []
    while not any(received.id == id and received.kind in {*FINAL, ANSWER} for received in frames):
        frames.append(worker.receive())
    worker.send(frame(PING, 9999))
    while True:
        received = worker.receive()
        if (received.kind, received.id) == (PONG, 9999):
            assert id not in received.head["open"]
            return frames
        frames.append(received)


def expect(failed: Frame, trouble: str) -> None:
    """Checks the frame for one of the troubles."""
    assert failed.kind == ERROR, failed
    head = failed.head
    statuses = {"status": 404, "high_status": 599, "low_status": 400, "odd_status": 500, "no_status": 500}
    statuses["http_exception"] = 429
    if trouble in statuses:
        assert (head["kind"], head["status"]) == ("mlserver", statuses[trouble])
        assert trouble != "http_exception" or head["message"] == "slow down"
        return
    assert (head["kind"], head["status"]) == ("model", 500), head
    assert head["traceback"]
    assert "_worker" not in head["traceback"].split("\n")[1]
    assert len(failed.whole) < 1 << 20
    if trouble == "panic":
        assert head["message"] == "trouble_models.Panic: boom"
    if trouble == "cancelled":
        assert head["message"] == "asyncio.exceptions.CancelledError: "
    if trouble == "system_exit":
        assert head["message"] == "builtins.SystemExit: 3"


ALL = sorted(TROUBLES)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("implementation", ["Trouble", "PlainTrouble", "Deferred"])
def test_predict_that_raises_ends_only_its_call(implementation: str, inline: bool):
    with Worker(inline=inline) as worker:
        assert worker.load(f"trouble_models.{implementation}").kind == LOADED
        for number, trouble in enumerate(ALL):
            expect(predict(worker, 512 + number, trouble), trouble)
            assert predict(worker, 768 + number, "fine").kind == ANSWER


def test_predict_that_raises_after_waiting_ends_only_its_call():
    with Worker() as worker:
        worker.load("trouble_models.Trouble")
        for number, trouble in enumerate(ALL):
            expect(predict(worker, 512 + number, f"later {trouble}"), trouble)
            assert predict(worker, 768 + number, "fine").kind == ANSWER


@pytest.mark.parametrize("path", ["async", "plain"])
def test_handler_that_raises_ends_only_its_call(path: str):
    with Worker() as worker:
        worker.load("trouble_models.Trouble")
        for number, trouble in enumerate(ALL):
            for id, name in ((512 + number, trouble), (768 + number, "fine")):
                head = {"model": 7, "handler": f"handle_{path}", "method": "GET", "path": f"/{path}/{name}"}
                worker.send(frame(CALL, id, {**head, "path_params": {"name": name}, "query": "", "headers": []}))
                found = final(worker, id)
                if name == "fine":
                    assert (found.kind, found.tail) == (REPLY, b'"fine"')
                elif trouble == "http_exception":
                    # The reply is that of FastAPI.
                    assert (found.kind, found.head["status"]) == (REPLY, 429)
                else:
                    expect(found, trouble)


def stream(worker: Worker, id: int, names: List[str]) -> List[Frame]:
    """Sends a stream of requests, and returns its answers and its final frame."""
    worker.send(frame(STREAM, id, {"model": 7, "request": "s", "credit": 9}))
    for name in names:
        worker.send(frame(ITEM, id, {**request(name), "model": None}, NUMBER))
    worker.send(frame(END, id))
    frames: List[Frame] = []
    while not frames or frames[-1].kind not in FINAL:
        received = worker.receive()
        if received.kind != CREDIT:
            frames.append(received)
    return frames


@pytest.mark.parametrize("before", [[], ["fine"]], ids=["before_events", "between_events"])
def test_stream_that_raises_ends_only_its_call(before: List[str]):
    with Worker() as worker:
        worker.load("trouble_models.Trouble")
        for number, trouble in enumerate(ALL):
            frames = stream(worker, 512 + number, [*before, trouble, "fine"])
            assert [found.kind for found in frames[:-1]] == [ANSWER] * len(before)
            expect(frames[-1], trouble)
            assert [found.kind for found in stream(worker, 768 + number, ["fine"])] == [ANSWER, END]


@pytest.mark.parametrize("where", ["stream", "item"])
@pytest.mark.parametrize("trouble", ALL)
def test_plain_stream_that_raises_ends_only_its_call(where: str, trouble: str):
    with Worker() as worker:
        worker.load("trouble_models.PlainTrouble", parameters={"extra": {where: trouble}})
        frames = stream(worker, 512, ["fine"])
        assert [found.kind for found in frames[:-1]] == ([ANSWER] if where == "item" else [])
        if (where, trouble) == ("item", "stop_iteration"):
            assert frames[-1].kind == END
        else:
            expect(frames[-1], trouble)
        assert predict(worker, 513, "fine").kind == ANSWER


@pytest.mark.parametrize("implementation", ["Trouble", "PlainTrouble"])
@pytest.mark.parametrize("entry", ["load", "unload"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "own_loop"])
def test_load_and_unload_that_raise_end_only_their_call(implementation: str, entry: str, is_first: bool):
    with Worker() as worker:
        if not is_first:
            assert worker.load("trouble_models.Trouble", model=8).kind == LOADED
        for number, trouble in enumerate(ALL):
            id, extra = 256 + number, {"entry": entry, "trouble": trouble}
            found = worker.load(f"trouble_models.{implementation}", id=id, parameters={"extra": extra})
            if entry == "unload":
                assert (found.kind, found.head["own_loop"]) == (LOADED, not is_first)
                worker.send(frame(UNLOAD, id + 256, {"model": 7}))
                found = final(worker, id + 256)
            expect(found, trouble)
        assert worker.load(f"trouble_models.{implementation}", id=1025, parameters={"extra": {}}).kind == LOADED
        assert predict(worker, 1026, "fine").kind == ANSWER


def test_exit_of_background_task_does_not_end_worker():
    with Worker() as worker:
        for model in (7, 8):
            worker.load("trouble_models.BackgroundExit", model=model)
            assert predict(worker, 512, "fine", model).kind == ANSWER


@pytest.mark.parametrize("implementation", ["Trouble", "PlainTrouble"])
def test_many_observations_are_sent_in_several_frames_and_bounded(implementation: str):
    with Worker() as worker:
        worker.load(f"trouble_models.{implementation}")
        worker.send(frame(PREDICT, 512, request("observations"), NUMBER))
        # The worker waits for a server that does not read, but not forever.
        assert worker.process.stdout is not None
        while b"all observed" not in worker.process.stdout.readline():
            assert worker.process.poll() is None
        frames = until_pong(worker, 512)
        assert frames[-1].kind == ANSWER
        counts = [len(found.head["observed"]) for found in frames if found.kind == METRICS]
        assert max(counts) == 5_000
        assert sum(counts) >= 200_000
        assert predict(worker, 513, "fine").kind == ANSWER
        dropped = re.findall(r"Dropped (\d+) observations", ended(worker))
        assert sum(counts) + sum(map(int, dropped)) == 300_000
        assert len(dropped) == 1


def test_values_that_are_not_finite_do_not_hide_others():
    with Worker() as worker:
        worker.load("trouble_models.Trouble")
        for id in (512, 513):
            worker.send(frame(PREDICT, id, request("not_finite"), NUMBER))
            metrics, answer = until_pong(worker, id)
            assert [observed[0] for observed in metrics.head["observed"]] == ["trouble_good"]
            assert answer.kind == ANSWER
        assert ended(worker).count("that is not finite") == 2


def test_scrape_sends_observations():
    with Worker() as worker:
        worker.load("trouble_models.Background")
        assert worker.process.stdout is not None
        assert "observed" in worker.process.stdout.readline().decode()
        worker.send(frame(SCRAPE))
        metrics, exposition = worker.receive(), worker.receive()
        assert (metrics.kind, [seen[4] for seen in metrics.head["observed"]]) == (METRICS, [1.5])
        assert exposition.kind == EXPOSITION


def ended(worker: Worker) -> str:
    """Stops the worker, and returns its output."""
    worker.send(frame(STOP))
    assert worker.process.wait(10) == 0
    assert worker.process.stdout is not None
    return worker.process.stdout.read().decode()


@pytest.mark.parametrize("implementation", ["Trouble", "PlainTrouble"])
def test_answer_longer_than_a_frame_fails_its_call(implementation: str):
    with Worker() as worker:
        worker.load(f"trouble_models.{implementation}")
        failed = predict(worker, 512, "too_long").head
        assert (failed["kind"], failed["status"]) == ("mlserver", 500)
        assert "returned a response that cannot be sent" in failed["message"]
        assert predict(worker, 513, "fine").kind == ANSWER


def test_pong_lists_open_calls():
    with Worker() as worker:
        worker.load("trouble_models.PlainTrouble")
        worker.send(frame(PREDICT, 512, request("sleep"), NUMBER), frame(PREDICT, 513, request("fine"), NUMBER))
        worker.send(frame(PING, 514, None, b"tail"))
        pong = worker.receive()
        assert (pong.kind, pong.head, pong.tail) == (PONG, {"open": [512, 513]}, b"tail")
        assert [worker.receive().id, worker.receive().id] == [512, 513]
        worker.send(frame(PING, 515))
        assert worker.receive().head == {"open": []}


def test_plain_call_that_waits_for_its_thread_is_cancelled_at_once():
    with Worker() as worker:
        worker.load("trouble_models.PlainTrouble")
        worker.send(frame(PREDICT, 512, request("sleep"), NUMBER), frame(PREDICT, 513, request("fine"), NUMBER))
        while not worker.begun(512):
            time.sleep(0.001)
        worker.send(frame(CANCEL, 513), frame(CANCEL, 512))
        first, second = worker.receive(), worker.receive()
        assert (first.id, first.kind, first.head["kind"]) == (513, ERROR, "cancelled")
        assert (second.id, second.kind) == (512, ANSWER), "a plain function cannot be interrupted"
        assert not worker.begun(513)
        assert predict(worker, 514, "fine").kind == ANSWER


def test_answers_of_plain_functions_are_sent_together():
    with Worker() as worker:
        worker.load("trouble_models.Patient")
        before = int(predict(worker, 512, "first").head["outputs"][0]["name"])
        rounds, ahead = 50, 8
        for _ in range(rounds):
            worker.send(*(frame(PREDICT, 513 + number, request("fine"), NUMBER) for number in range(ahead)))
            assert [worker.receive().id for _ in range(ahead)] == [513 + number for number in range(ahead)]
        after = int(predict(worker, 512, "last").head["outputs"][0]["name"])
        assert after - before < rounds * ahead, "each answer was written alone"


def test_answer_of_a_plain_function_does_not_wait_for_a_slow_one():
    with Worker() as worker:
        worker.load("trouble_models.Patient")
        for number in range(512, 532, 4):
            # Those before the slow one are answered while it runs, and what comes later is answered after it.
            names = ["fine", "fine", "wait", "fine"]
            worker.send(*(frame(PREDICT, number + place, request(name), NUMBER) for place, name in enumerate(names)))
            assert [worker.receive().id for _ in range(2)] == [number, number + 1]
            worker.send(frame(CANCEL, number + 2))
            assert [worker.receive().id for _ in range(2)] == [number + 2, number + 3]


def test_cancelled_call_between_plain_functions_does_not_keep_answers():
    with Worker() as worker:
        worker.load("trouble_models.Patient")
        names = ["wait", "fine", "fine"]
        worker.send(*(frame(PREDICT, 512 + place, request(name), NUMBER) for place, name in enumerate(names)))
        while not worker.begun(512):
            time.sleep(0.001)
        worker.send(frame(CANCEL, 514), frame(CANCEL, 513))
        cancelled = [worker.receive(), worker.receive()]
        assert [(one.id, one.kind, one.head["kind"]) for one in cancelled] == [
            (514, ERROR, "cancelled"),
            (513, ERROR, "cancelled"),
        ]
        worker.send(frame(CANCEL, 512))
        assert worker.receive()[:2] == (ANSWER, 512), "those behind it have ended already"


def test_answers_are_gathered_for_a_moment_only():
    ours, theirs = socket.socketpair()
    loop = asyncio.new_event_loop()
    connection = Connection(loop, ours, lambda: None)
    theirs.setblocking(False)

    def received() -> List[int]:
        try:
            content = theirs.recv(1 << 16)
        except BlockingIOError:
            return []
        return [content[start] for start in range(0, len(content), 24)]

    try:
        connection.send(FrameKind.DONE, 1)
        connection.flush_later()
        assert received() == [DONE], "nothing is expected"
        connection.expect_more()
        connection.send(FrameKind.DONE, 2)
        connection.flush_later()
        assert received() == []
        connection.send(FrameKind.PONG, 3)
        connection.flush()
        assert received() == [DONE, PONG]
        connection.send(FrameKind.DONE, 4)
        connection.flush_later()
        assert received() == []
        loop.run_until_complete(asyncio.sleep(0.01))
        assert received() == [DONE], "the moment has passed"
        connection.send(FrameKind.DONE, 5)
        connection.flush_later()
        assert received() == [DONE]
    finally:
        loop.close()
        ours.close()
        theirs.close()


def test_load_that_raises_is_followed_by_unload():
    with Worker(debug=True) as worker:
        failed = worker.load("trouble_models.Unloaded").head
        assert failed["message"] == "builtins.ValueError: boom"
        output = ended(worker)
        assert "unloaded, opened=True" in output
        assert "`unload` failed after `load` had failed" in output


def test_load_that_is_tried_again_unloads_the_former_instance():
    with Worker(debug=True) as worker:
        for _ in range(3):
            assert worker.load("trouble_models.FalseAndUnloaded").head["ready"] is False
        output = ended(worker)
        assert output.count("unloaded after false") == 2, output


@pytest.mark.parametrize(("implementation", "ready"), [("NoReturn", True), ("NotReady", False)])
def test_only_false_from_load_means_not_ready(implementation: str, ready: bool):
    with Worker() as worker:
        assert worker.load(f"trouble_models.{implementation}").head["ready"] is ready


def test_plain_functions_run_on_as_many_threads_as_configured():
    with Worker() as worker:
        loaded = worker.load("trouble_models.PlainTrouble", parameters={"threads": 3})
        assert (loaded.head["plain"], loaded.head["threads"]) == (True, 3)
        start = time.monotonic()
        worker.send(*(frame(PREDICT, 512 + number, request("sleep"), NUMBER) for number in range(3)))
        assert {worker.receive().id for _ in range(3)} == {512, 513, 514}
        assert time.monotonic() - start < 0.55


# A model that loads does not delay others


def slowest_call_until(worker: Worker, id: int) -> Tuple[float, Frame]:
    """Calls model 7 until the call `id` ends; returns the longest duration and the frame that has ended it."""
    slowest, number = 0.0, 1024
    while True:
        start = time.monotonic()
        worker.send(frame(PREDICT, number, request("fine"), NUMBER))
        received = worker.receive()
        ended = received if received.id == id else None
        if ended is not None:
            received = worker.receive()
        assert (received.kind, received.id) == (ANSWER, number)
        slowest = max(slowest, time.monotonic() - start)
        if ended is not None:
            return slowest, ended
        number += 1
        time.sleep(0.002)


@pytest.mark.parametrize("first", ["Trouble", "PlainTrouble"])
@pytest.mark.parametrize("second", ["Slow", "PlainSlow"])
def test_load_does_not_delay_calls_of_other_models(first: str, second: str):
    with Worker() as worker:
        assert worker.load(f"trouble_models.{first}").head["own_loop"] is False
        settings = {"name": "slow", "implementation": f"trouble_models.{second}", "parameters": {}}
        worker.send(frame(2, 300, {"model": 8, "settings": settings, "source": None}))
        slowest, loaded = slowest_call_until(worker, 300)
        assert (loaded.kind, loaded.head["own_loop"]) == (LOADED, True)
        assert slowest < 0.1
        assert predict(worker, 512, "fine", 8).kind == ANSWER
        worker.send(frame(UNLOAD, 513, {"model": 8}))
        assert final(worker, 513).kind == DONE
        assert "unloads on its loop: True" in (output := ended(worker)) or "unloads on its thread: True" in output


def test_model_with_own_loop_answers_calls_on_it():
    with Worker() as worker:
        worker.load("trouble_models.Trouble")
        worker.load("trouble_models.Slow", model=8, id=257)
        # A call that blocks the loop of one model does not delay the other.
        worker.send(frame(PREDICT, 600, request("block", 8), NUMBER))
        slowest, answered = slowest_call_until(worker, 600)
        assert (answered.kind, slowest < 0.1) == (ANSWER, True)
        # Calls overlap on it, and report that they wait.
        worker.send(frame(PREDICT, 601, request("wait", 8), NUMBER))
        assert (worker.receive(yields=True).id) == 601
        assert predict(worker, 602, "fine", 8).kind == ANSWER
        worker.send(frame(CANCEL, 601))
        assert final(worker, 601).head["kind"] == "cancelled"
        for number, trouble in enumerate(ALL):
            expect(predict(worker, 700 + number, trouble, 8), trouble)
        head = {"model": 8, "handler": "handle", "method": "GET", "path": "/loop", "path_params": {}}
        worker.send(frame(CALL, 603, {**head, "query": "", "headers": []}))
        assert final(worker, 603).tail == b"true"
        worker.send(frame(STREAM, 604, {"model": 8, "request": "s", "credit": 1}))
        items = [frame(ITEM, 604, {**request("a"), "model": None}, NUMBER)] * 3
        assert worker.receive().kind == CREDIT
        worker.send(*items, frame(CREDIT, 604, {"count": 3}), frame(END, 604))
        kinds = []
        while END not in kinds:
            kinds.append(worker.receive().kind)
        assert (kinds.count(ANSWER), kinds.count(CREDIT)) == (3, 3)
