"""Coroutine functions that are marked as blocking run on the model's thread, and can be awaited by subclasses."""

import threading

from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver.handlers import custom_handler
from mlserver.types import InferenceResponse, ResponseOutput
from test_worker_calls import NUMBER, predict, request
from worker import ANSWER, CALL, DONE, ERROR, LOADED, PREDICT, REPLY, UNLOAD, Worker, frame


def _where() -> str:
    return "loop" if threading.current_thread() is threading.main_thread() else "thread"


class Marked(MLModel):
    @blocking
    async def load(self) -> bool:
        self.seen = [_where()]
        return True

    @blocking
    async def predict(self, payload):
        if payload.id == "waits":
            import asyncio

            await asyncio.sleep(0)
        output = ResponseOutput(name="y", datatype="BYTES", shape=[2], data=[*self.seen, _where()])
        return InferenceResponse(model_name=self.name, outputs=[output])

    @blocking
    async def unload(self) -> bool:
        assert _where() == "thread"
        return True

    @custom_handler(rest_path="/where", rest_method="GET")
    @blocking
    async def where(self) -> str:
        return _where()


class Subclass(Marked):
    async def load(self) -> bool:
        return await super().load()

    async def predict(self, payload):
        return await super().predict(payload)


def test_marked_methods_run_on_the_thread_of_the_model():
    with Worker() as worker:
        loaded = worker.load("test_blocking.Marked")
        assert loaded.kind == LOADED
        assert loaded.head["plain"] is True
        assert loaded.head["handlers"][0]["plain"] is True
        worker.send(frame(PREDICT, 257, request("a"), NUMBER))
        answer = worker.receive(yields=True)
        assert answer.kind == ANSWER
        assert answer.tail.endswith(b"threadthread")
        worker.send(frame(CALL, 258, _call()))
        reply = worker.receive(yields=True)
        assert (reply.kind, reply.tail) == (REPLY, b'"thread"')
        worker.send(frame(UNLOAD, 259, {"model": 7}))
        assert worker.receive().kind == DONE


def test_subclass_awaits_marked_methods():
    with Worker() as worker:
        loaded = worker.load("test_blocking.Subclass")
        assert loaded.head["plain"] is False
        assert predict(worker, 257, "a").tail.rstrip(b"\0").endswith(b"looploop")


def test_marked_method_that_waits_is_an_error():
    with Worker() as worker:
        worker.load("test_blocking.Marked")
        failed = predict(worker, 257, "waits")
        assert failed.kind == ERROR
        assert "waits, although it is marked as blocking" in failed.head["message"]
        assert predict(worker, 258, "a").kind == ANSWER


def _call():
    return {
        "model": 7, "handler": "where", "method": "GET", "path": "/where", "path_params": {}, "query": "", "headers": [],
    }  # fmt: skip


