"""Runs a worker process, and sends it frames over its socket.

The frames of `tests/fixtures/frames` are shared with the server's tests. The server writes exactly those of kinds below 64
and reads the others; the worker does the opposite.
"""

import json
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

import pytest
from mlserver._worker import frames
from worker import (
    ANSWER,
    CALL,
    CANCEL,
    CHUNK,
    CREDIT,
    DONE,
    END,
    ERROR,
    FIXTURES,
    LOADED,
    METRICS,
    PING,
    PONG,
    PREDICT,
    STOP,
    STREAM,
    UNLOAD,
    YIELDED,
    Frame,
    Worker,
    fixture,
    frame,
    read_frame,
)


def receive_all(worker: Worker, count: int) -> Dict[int, List[Frame]]:
    """Receives `count` frames, and returns them by id."""
    found: Dict[int, List[Frame]] = {}
    for _ in range(count):
        received = worker.receive()
        found.setdefault(received.id, []).append(received)
    return found


def request(name: str = "x", id: str = "r", **more: Any) -> Dict[str, Any]:
    tensor = {"name": name, "datatype": "INT64", "shape": [1], "size": 8}
    return {"model": 7, "id": id, "inputs": [tensor], **more}


NUMBER = (42).to_bytes(8, "little")


# The shared fixtures


def same(found: Frame, name: str) -> None:
    path = FIXTURES / f"{name}.bin"
    if not path.exists() or found.whole != path.read_bytes():
        new = pathlib.Path(tempfile.mkdtemp()) / path.name
        new.write_bytes(found.whole)
        pytest.fail(f"`{name}` differs; what came is in {new}")


def test_worker_frames_match_fixtures():
    with Worker() as worker:
        worker.send(fixture("load"))
        same(worker.receive(), "loaded")
        worker.send(fixture("predict"))
        same(worker.receive(), "metrics")
        same(worker.receive(), "answer")
        worker.send(fixture("call"))
        same(worker.receive(), "reply")
        call = read_frame(Reader(fixture("call")))
        assert call is not None
        worker.send(frame(CALL, call.id, {**call.head, "query": "q=3"}))
        same(worker.receive(yields=True), "chunk")
        assert worker.receive()[:4] == (CHUNK, call.id, {}, b'data: {"n":1}\n\n')
        assert worker.receive()[:3] == (DONE, call.id, {})
        worker.send(fixture("stream"))
        same(worker.receive(), "credit")
        worker.send(fixture("item"), fixture("credit"), fixture("end"))
        assert worker.receive().head == {"count": 1}
        assert worker.receive().kind == ANSWER
        same(worker.receive(), "end")
        cancel = read_frame(Reader(fixture("cancel")))
        assert cancel is not None
        worker.send(frame(PREDICT, cancel.id, request(id="wait"), NUMBER))
        same(worker.receive(yields=True), "yielded")
        worker.send(fixture("ping"))
        same(worker.receive(), "pong")
        worker.send(fixture("cancel"))
        same(worker.receive(), "error")
        answer = read_frame(Reader(fixture("step_answer")))
        assert answer is not None
        worker.send(frame(PREDICT, answer.id, request(id="ask"), NUMBER))
        same(worker.receive(), "step")
        worker.send(fixture("step_answer"))
        final = worker.receive()
        assert (final.kind, final.id, final.head["outputs"][0]["name"]) == (ANSWER, answer.id, "numbers")
        assert final.tail == answer.tail
        worker.send(fixture("unload"))
        same(worker.receive(), "done")
        worker.send(fixture("stop"))
        assert worker.process.wait(10) == 0


@pytest.mark.needs("prometheus_client")
def test_exposition_frame_matches_fixture():
    with Worker() as worker:
        worker.send(fixture("load"))
        same(worker.receive(), "loaded")
        worker.send(fixture("scrape"))
        same(worker.receive(), "exposition")


def test_ready_frame_matches_fixture():
    recorded = read_frame(Reader(fixture("ready")))
    assert recorded is not None
    with Worker() as worker:
        assert worker.ready.head.keys() == recorded.head.keys()
        assert worker.ready.head["protocol"] == recorded.head["protocol"] == frames.PROTOCOL


class Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __call__(self, size: int) -> bytes:
        taken, self.content = self.content[:size], self.content[size:]
        return taken


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_frame_reader_splits_frames_at_any_boundary(chunk: int):
    names = sorted(path.stem for path in FIXTURES.glob("*.bin"))
    large = frame(PING, 5, None, bytes(300_000))
    content = b"".join(map(fixture, names)) + large + fixture("ping")
    reader = frames.FrameReader()
    found = []
    while content:
        room = reader.room()
        size = min(len(room), chunk if len(content) < 290_000 else 65536, len(content))
        room[:size] = content[:size]
        content = content[size:]
        found += [(header, head, bytes(tail)) for header, head, tail in reader.filled(size)]
    expected = [read_frame(Reader(fixture(name))) for name in names]
    expected += [read_frame(Reader(large)), read_frame(Reader(fixture("ping")))]
    for (header, head, tail), frame_ in zip(found, expected):
        assert frame_ is not None
        assert (header.kind, header.id, head, tail) == frame_[:4]
    assert len(found) == len(expected)


@pytest.mark.needs("numpy")
def test_small_request_raises_no_exceptions_inside():
    """Each costs as much as ten other lookups, and nobody sees them."""
    import numpy
    from mlserver import MLModel, ModelSettings
    from mlserver._worker.calls import answer
    from mlserver.codecs import NumpyCodec
    from mlserver.types import InferenceResponse
    from mlserver.types.dataplane import decode_on_demand

    model: Any = MLModel(ModelSettings(name="m", implementation="models.M"))
    model.has_warned = False
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "size": 16}
    head = {"id": "1", "headers": {"host": "localhost"}, "inputs": [tensor]}
    raised = []

    def trace(_frame: Any, event: str, argument: Any) -> Any:
        if event == "exception":
            raised.append(argument[0])
        return trace

    def predict() -> Any:
        payload = frames.read_request(head, bytearray(numpy.arange(4, dtype="f").tobytes()))
        decode_on_demand(payload, model.settings)
        array = model.decode(payload.inputs[0], default_codec=NumpyCodec)
        response = InferenceResponse(model_name=model.name, outputs=[NumpyCodec.encode_output("x", array)])
        return answer(model, response)

    predict()  # what is imported and cached once
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        final = predict()
    finally:
        sys.settrace(before)
    assert json.loads(final.head)["outputs"][0]["datatype"] == "FP32"
    assert raised == []


def test_read_request_decodes_fixture():
    recorded = read_frame(Reader(fixture("predict")))
    assert recorded is not None
    payload = frames.read_request(recorded.head, bytearray(recorded.tail))
    assert payload.id == "r1"
    assert payload.parameters.content_type == "pd"
    assert payload.parameters.extra == [1, None, "ä"]
    assert payload.parameters.headers == {"x-question": "why", "Ce-Id": "r1"}
    numbers, small, text, raw = payload.inputs
    assert (numbers.name, numbers.datatype, numbers.shape) == ("numbers", "FP32", [1, 2])
    assert (numbers.parameters.content_type, list(numbers.data)) == ("np", [1.0, -2.0])
    assert (small.datatype, list(small.data)) == ("INT8", [1, -1, 3])
    assert (text.shape, list(text.data)) == ([3], ["a", "", "äb"])
    assert list(raw.data) == [b"\x00\xff"]
    assert [(output.name, output.parameters.content_type) for output in payload.outputs] == [("numbers", "np")]


def test_hello_frame_has_expected_fields():
    recorded = read_frame(Reader(fixture("hello")))
    assert recorded is not None
    assert recorded.head == {
        "protocol": frames.PROTOCOL,
        "worker": "default-0",
        "parent": 4711,
        "inline": False,
        "debug": True,
        "logging": {"version": 1},
        "paths": ["/models"],
    }


# Invalid frames


@pytest.mark.parametrize(
    "wrong",
    [
        frame(99),
        frame(PREDICT, 513)[:4] + b"\xff\xff\xff\x7f" + frame(PREDICT, 513)[8:],
        frame(PING)[:16] + b"\xff" * 8,
        frame(PREDICT, 513, ["no object"]),
    ],
    ids=["kind", "head", "tail", "json"],
)
def test_invalid_frame_ends_worker(wrong: bytes):
    with Worker() as worker:
        worker.send(wrong)
        with pytest.raises(AssertionError, match=r"the worker has exited"):
            worker.receive()
        assert worker.process.wait(10) != 0


@pytest.mark.parametrize(
    "head",
    [
        {"model": 8, "inputs": []},
        {"model": 7},
        request(outputs=[{}]),
        {"model": 7, "inputs": [{"name": "x", "datatype": "INT64", "shape": [2], "size": 16}]},
        {"model": 7, "inputs": [{"name": "x", "datatype": "BYTES", "shape": [9], "size": 8, "count": 9}]},
        {"model": 7, "inputs": [3]},
    ],
)
def test_invalid_call_fails_without_ending_worker(head: Dict[str, Any]):
    with Worker() as worker:
        worker.load("frame_models.Echo")
        worker.send(frame(PREDICT, 513, head, NUMBER))
        failed = worker.receive()
        assert (failed.kind, failed.id, failed.head["kind"]) == (ERROR, 513, "request")
        worker.send(frame(PREDICT, 514, request(), NUMBER))
        assert (worker.receive().kind) == ANSWER


# Calls


def test_call_is_marked_in_page_before_user_code():
    with Worker() as worker:
        worker.load("frame_models.Echo")
        assert not worker.begun(513)
        worker.send(frame(PREDICT, 513, request(id="wait"), NUMBER))
        assert worker.receive(yields=True).kind == YIELDED
        assert worker.begun(513)


def test_coroutine_calls_overlap():
    with Worker() as worker:
        worker.load("frame_models.Echo")
        worker.send(frame(PREDICT, 513, request(id="wait"), NUMBER), frame(PREDICT, 514, request(), NUMBER))
        assert worker.receive().id == 514
        worker.send(frame(CANCEL, 513), frame(CANCEL, 999))
        assert worker.receive().head["kind"] == "cancelled"


def test_model_exception_has_class_and_traceback():
    with Worker() as worker:
        worker.load("frame_models.Echo")
        worker.send(frame(PREDICT, 513, request(id="fail"), NUMBER))
        failure = worker.receive().head
        assert (failure["kind"], failure["status"], failure["message"]) == ("model", 500, "builtins.ValueError: boom")
        assert "frame_models.py" in failure["traceback"]


def test_stream_respects_credit():
    with Worker() as worker:
        worker.load("frame_models.Echo")
        worker.send(frame(STREAM, 513, {"model": 7, "request": "s", "credit": 1}))
        assert worker.receive().head == {"count": 4}
        items = [fixture("item").replace((0x403).to_bytes(8, "little"), (513).to_bytes(8, "little"))] * 3
        worker.send(*items, frame(END, 513), frame(PING, 514))
        received = receive_all(worker, 3)
        assert [found.kind for found in received[514]] == [PONG]
        assert [found.kind for found in received[513]].count(ANSWER) == 1
        worker.send(frame(CREDIT, 513, {"count": 3}))
        kinds = [found.kind for found in received[513]]
        while kinds[-1] != END:
            kinds.append(worker.receive().kind)
        assert (kinds.count(ANSWER), kinds.count(CREDIT)) == (3, 3)


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        ("nowhere.Model", "there is no module `nowhere`, neither in `"),
        ("missing_module_model.Model", "it needs the module `not_installed_anywhere`, which "),
        ("missing_module_model.Model", "-m pip install not_installed_anywhere"),
        ("frame_models.Absent", "has no `Absent`"),
        ("frame_models.Ecko", "has no `Ecko` (did you mean `Echo`?)"),
        ("Echo", "`Echo` is not an import path"),
    ],
)
def test_load_of_missing_model_reports_what_to_do(implementation: str, message: str):
    with Worker() as worker:
        failed = worker.load(implementation)
        assert (failed.kind, failed.head["kind"]) == (ERROR, "mlserver")
        assert message in failed.head["message"]


def test_invalid_handler_call_is_422():
    with Worker() as worker:
        assert worker.load("frame_models.Echo").kind == LOADED
        head = {"model": 7, "handler": "echo", "method": "PUT", "path": "/echo/a", "path_params": {"name": "a"}}
        worker.send(frame(CALL, 513, {**head, "query": "q=x", "headers": []}))
        failed = worker.receive().head
        assert (failed["kind"], failed["status"]) == ("mlserver", 422)
        assert failed["message"].startswith("query.q: Input should be a valid integer")


def test_metrics_frame_precedes_final_frame():
    with Worker() as worker:
        worker.load("frame_models.Echo")
        worker.send(frame(PREDICT, 513, request(id="r1"), NUMBER))
        assert [worker.receive().kind, worker.receive().kind] == [METRICS, ANSWER]


def stop(worker: Worker) -> None:
    worker.send(frame(STOP))


def leave(worker: Worker) -> None:
    worker.server.close()


@pytest.mark.parametrize(("end", "code"), [(stop, 0), (leave, 1)])
def test_worker_exits_on_stop_and_disconnect(end: Callable[[Worker], None], code: int):
    with Worker() as worker:
        worker.load("frame_models.Echo")
        for number in (signal.SIGINT, signal.SIGTERM):
            worker.process.send_signal(number)
        worker.send(frame(UNLOAD, 257, {"model": 7}))
        assert worker.receive().kind == DONE
        end(worker)
        assert worker.process.wait(10) == code


def test_models_of_kserve_are_stopped_in_order_even_if_they_are_unloaded(tmp_path: pathlib.Path):
    record, may_end = tmp_path / "stopped", tmp_path / "may_end"
    (tmp_path / "stop_models.py").write_text(f"""
import pathlib
import time

import kserve

class Stops(kserve.Model):
    def load(self):
        self.ready = True
        return True

    def stop(self):
        with open({str(record)!r}, "a") as record:
            record.write(self.name + " ")
        while not pathlib.Path({str(may_end)!r}).exists():
            time.sleep(0.01)
""")
    with Worker(paths=[str(tmp_path)]) as worker:
        for number, name in ((7, "a"), (8, "b")):
            assert worker.load("stop_models.Stops", number, 256 + number, name=name).kind == LOADED
        worker.send(frame(STOP))
        deadline = time.monotonic() + 10
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        # The server forgets its models while the worker stops.
        worker.send(frame(UNLOAD, 300, {"model": 8}))
        assert worker.receive().kind == DONE
        assert record.read_text() == "a "
        may_end.touch()
        assert worker.process.wait(10) == 0
        assert record.read_text() == "a b "


# Concurrent frames and large tensors


def test_call_cancelled_together_with_its_frame_gets_final_frame():
    with Worker() as worker:
        worker.send(fixture("load"))
        assert worker.receive().kind == LOADED
        # Together, so that the worker reads all of them at once. From CPython 3.12 on, the first call has begun by then.
        waiting = frame(PREDICT, 512, request(id="wait"), NUMBER)
        worker.send(waiting + frame(CANCEL, 512) + frame(PREDICT, 769, request(), NUMBER))
        found = receive_all(worker, 2)
        assert (found[512][0].kind, found[512][0].head["kind"]) == (ERROR, "cancelled")
        assert found[769][0].kind == ANSWER


def test_tensors_larger_than_socket_buffer_round_trip():
    size = 8 << 20
    content = bytes(range(256)) * (size // 256)
    tensor = {"name": "x", "datatype": "UINT8", "shape": [size], "size": size}
    with Worker() as worker:
        worker.send(fixture("load"))
        assert worker.receive().kind == LOADED
        for id in (512, 769):
            worker.send(frame(PREDICT, id, {"model": 7, "id": "r", "inputs": [tensor]}, content))
            answer = worker.receive()
            assert (answer.kind, answer.id) == (ANSWER, id)
            assert answer.tail == content


def test_traceback_starts_in_model_code():
    with Worker() as worker:
        worker.send(fixture("load"))
        assert worker.receive().kind == LOADED
        worker.send(frame(PREDICT, 512, request(id="fail"), NUMBER))
        failure = worker.receive().head
        assert failure["message"] == "builtins.ValueError: boom"
        assert "frame_models.py" in failure["traceback"]
        assert "service.py" not in failure["traceback"]
