"""Models that raise, at each of their entry points, what user code can raise.

`parameters.extra` of the settings names the trouble and the entry point of a load. The id of a request names it for a call.
"""

import asyncio
import os
import sys
import threading
import time
from contextvars import copy_context
from http import HTTPStatus

import mlserver
from mlserver import MLModel, cancelled
from mlserver._worker.connection import Connection
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.types import InferenceResponse, ResponseOutput


class Panic(BaseException):
    """Like the panics of Rust extensions."""


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


class OddStatus(MLServerError):
    def __init__(self):
        super().__init__("odd", "no number")


class NoStatus(MLServerError):
    def __init__(self):
        Exception.__init__(self, "no status")


def _group():
    if sys.version_info < (3, 11):
        return Panic("no groups")
    return BaseExceptionGroup("group", [Panic("inner"), ValueError("inner")])  # noqa: F821


def _http_exception():
    """FastAPI's exception, or one that looks the same where FastAPI is not installed."""
    try:
        from fastapi import HTTPException
    except ImportError:
        base = type("HTTPException", (Exception,), {"__module__": "starlette.exceptions", "status_code": 429})
        error = base()
        error.detail = "slow down"
        return error
    return HTTPException(429, "slow down")


TROUBLES = {
    "http_exception": _http_exception,
    "panic": lambda: Panic("boom"),
    "group": _group,
    "stop_iteration": lambda: StopIteration("empty"),
    "stop_async_iteration": lambda: StopAsyncIteration("empty"),
    "system_exit": lambda: SystemExit(3),
    "keyboard_interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "unreadable": Unreadable,
    "long": lambda: ValueError("x" * (20 << 20)),
    "status": lambda: MLServerError("gone", HTTPStatus.NOT_FOUND),
    "high_status": lambda: MLServerError("high", 99999),
    "low_status": lambda: MLServerError("low", 200),
    "odd_status": OddStatus,
    "no_status": NoStatus,
}


def trouble(name):
    if name in TROUBLES:
        raise TROUBLES[name]()
    if name == "observations":
        for number in range(300_000):
            mlserver.log(trouble_seen=number)
        print("all observed", flush=True)
    if name == "not_finite":
        mlserver.log(trouble_seen=float("nan"), trouble_other=float("inf"), trouble_good=1.0)
    if name == "fork":
        child = os.fork()
        if child:
            os.waitpid(child, 0)


def response(name, text="x"):
    outputs = [ResponseOutput(name=text, shape=[1], datatype="INT64", data=[1])]
    if name == "too_long":
        outputs[0].name = "x" * (17 << 20)
    return InferenceResponse(model_name="m", outputs=outputs)


class Trouble(MLModel):
    """Coroutines."""

    def _trouble(self, entry):
        extra = self.settings.parameters.extra
        if extra.get("entry") == entry:
            trouble(extra["trouble"])

    async def load(self):
        self._trouble("load")
        await asyncio.sleep(0)
        return True

    async def unload(self):
        self._trouble("unload")
        return True

    async def predict(self, payload):
        if payload.id.startswith("later "):
            await asyncio.sleep(0.01)
        trouble(payload.id.replace("later ", ""))
        return response(payload.id)

    async def predict_stream(self, payloads):
        async for payload in payloads:
            trouble(payload.id)
            yield response(payload.id)

    @custom_handler(rest_path="/async/{name}")
    async def handle_async(self, name: str):
        trouble(name)
        return name

    @custom_handler(rest_path="/plain/{name}")
    def handle_plain(self, name: str):
        trouble(name)
        return name


class PlainTrouble(Trouble):
    """Plain functions."""

    def load(self):
        self._trouble("load")
        return True

    def unload(self):
        self._trouble("unload")
        return True

    def predict(self, payload):
        trouble(payload.id)
        if payload.id == "sleep":
            time.sleep(0.3)
        if payload.id == "thread":
            return response(payload.id, str(threading.get_ident()))
        return response(payload.id)

    def predict_stream(self, payloads):
        # Runs before the first answer; its answers do not depend on the requests.
        trouble(self.settings.parameters.extra.get("stream", ""))
        return Answers(self.settings.parameters.extra.get("item", ""))


class Patient(PlainTrouble):
    """A plain function that may run until its call is cancelled, and that counts how often the worker writes."""

    def load(self):
        self.writes = 0
        write = Connection._write

        def counted(connection):
            self.writes += 1
            write(connection)

        Connection._write = counted
        return True

    def predict(self, payload):
        while payload.id == "wait" and not cancelled():
            time.sleep(0.001)
        return response(payload.id, str(self.writes))


class Answers:
    """An iterator of a class, from which all exceptions come as they are."""

    def __init__(self, name):
        self._name = name
        self._left = 2

    def __iter__(self):
        return self

    def __next__(self):
        self._left -= 1
        if self._left < 0:
            raise StopIteration
        if self._left == 0:
            trouble(self._name)
        return response("")


class Deferred(MLModel):
    """A plain function that returns a coroutine."""

    def predict(self, payload):
        return self._predict(payload)

    async def _predict(self, payload):
        await asyncio.sleep(0.001)
        trouble(payload.id)
        return response(payload.id)


class Unloaded(MLModel):
    """A model whose `load` fails, and whose `unload` leaves a trace."""

    async def load(self):
        self.opened = True
        raise ValueError("boom")

    async def unload(self):
        print(f"unloaded, opened={self.opened}")
        raise RuntimeError("also fails")


class FalseAndUnloaded(MLModel):
    """A model whose `load` returns false, and whose `unload` leaves a trace."""

    def load(self):
        return False

    def unload(self):
        print("unloaded after false")
        raise RuntimeError("unload fails")


class NoReturn(MLModel):
    async def load(self):
        pass

    async def predict(self, payload):
        return response("")


class NotReady(MLModel):
    def load(self):
        return False


class BackgroundExit(MLModel):
    """A background task that wants to end the process."""

    async def predict(self, payload):
        task = asyncio.ensure_future(self._exit())
        await asyncio.wait([task])
        return response("")

    async def _exit(self):
        raise SystemExit(7)


class Background(MLModel):
    """Observes values in a thread, without any calls."""

    async def load(self):
        threading.Thread(target=copy_context().run, args=(self._observe,), daemon=True).start()
        return True

    def _observe(self):
        time.sleep(0.1)
        mlserver.log(trouble_seen=1.5)
        print("observed")


class Slow(MLModel):
    """A model whose parts block their thread."""

    async def load(self):
        time.sleep(2)
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        return True

    async def predict(self, payload):
        assert asyncio.get_running_loop() is self.loop
        if payload.id == "block":
            time.sleep(1)
        if payload.id == "wait":
            await self.event.wait()
        if payload.id == "set":
            self.event.set()
        trouble(payload.id)
        return response(payload.id)

    async def predict_stream(self, payloads):
        assert asyncio.get_running_loop() is self.loop
        async for payload in payloads:
            yield response(payload.id)

    @custom_handler(rest_path="/loop")
    async def handle(self):
        return asyncio.get_running_loop() is self.loop

    async def unload(self):
        print(f"unloads on its loop: {asyncio.get_running_loop() is self.loop}")
        return True


class PlainSlow(MLModel):
    def load(self):
        self.thread = threading.get_ident()
        time.sleep(2)
        return True

    def predict(self, payload):
        assert threading.get_ident() == self.thread
        return response(payload.id)

    def unload(self):
        print(f"unloads on its thread: {threading.get_ident() == self.thread}")
        return True
