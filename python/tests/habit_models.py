"""Habits of models in the wild. The id of a request names what a call does."""

import asyncio
import functools
import io
import sys
import threading
from contextvars import copy_context

import mlserver
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, decode_args
from mlserver.handlers import custom_handler
from mlserver.types import InferenceResponse, ResponseOutput

try:
    import numpy
except ImportError:
    numpy = None


def respond(value=1):
    return InferenceResponse(
        model_name="m", outputs=[ResponseOutput(name="y", shape=[1], datatype="INT64", data=[value])]
    )


async def run(factor, payload):
    await asyncio.sleep(0)
    return respond(factor)


def run_plain(factor, payload):
    return respond(factor)


class Callable:
    def __call__(self, payload):
        return respond(2)


class AsyncCallable:
    async def __call__(self, payload):
        await asyncio.sleep(0)
        return respond(2)


class PartialModel(MLModel):
    def __init__(self, settings):
        super().__init__(settings)
        self.predict = functools.partial(run, 2)


class PlainPartialModel(MLModel):
    predict = functools.partial(run_plain, 2)


class ObjectModel(MLModel):
    predict = Callable()


class AsyncObjectModel(MLModel):
    predict = AsyncCallable()


class LatePredict(MLModel):
    """Sets `predict` in `load`."""

    async def load(self):
        self.predict = functools.partial(run, 2)
        return True


class LatePlainPredict(MLModel):
    async def load(self):
        self.predict = functools.partial(run_plain, 2)
        return True


class Streams(MLModel):
    """Replaces the streams of the process."""

    async def load(self):
        sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8", line_buffering=True)
        sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8", line_buffering=True)
        sys.stderr = io.TextIOWrapper(sys.stderr.buffer, encoding="utf-8", line_buffering=True)
        return True

    async def predict(self, payload):
        print("printed")
        print("error", file=sys.stderr)
        sys.stdout = sys.__stdout__
        print("original")
        return respond()


class Habits(MLModel):
    async def predict(self, payload):
        if payload.id == "million":
            for number in range(1_000_000):
                mlserver.log(habit=number)
        elif payload.id == "thread":
            thread = threading.Thread(target=copy_context().run, args=(lambda: mlserver.log(habit=1),))
            thread.start()
            thread.join()
        elif payload.id == "wait":
            await asyncio.sleep(60)
        elif payload.id == "cancel":
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
        elif payload.id == "cancel_all":
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(1)
        elif payload.id.startswith("long"):
            text = payload.id[4:] * (20 << 20)
            try:
                raise ValueError(text)
            except ValueError as error:
                raise RuntimeError(text) from error
        return respond()


if numpy is not None:

    class TupleHints(MLModel):
        @decode_args
        async def predict(self, x: numpy.ndarray) -> (numpy.ndarray, numpy.ndarray):
            return x, x

        @custom_handler(rest_path="/tuple/{number}")
        async def tuple(self, number: int) -> (int, str):
            return number, "x"

    class TextHints(MLModel):
        @decode_args
        async def predict(self, x: "numpy.ndarray") -> "(numpy.ndarray, numpy.ndarray)":
            return x, x

        @custom_handler(rest_path="/tuple/{number}")
        async def tuple(self, number: "int") -> "(int, str)":
            return number, "x"

    class HintsInParentheses(MLModel):
        @decode_args
        async def predict(self, x: ("numpy.ndarray")) -> ("numpy.ndarray", "numpy.ndarray"):
            return x, x

        @custom_handler(rest_path="/tuple/{number}")
        async def tuple(self, number: (int)) -> ("int", "str"):
            return number, "x"

    class OneInTuple(MLModel):
        @decode_args
        async def predict(self, x: (numpy.ndarray,)) -> (numpy.ndarray,):
            return x

        @custom_handler(rest_path="/tuple/{number}")
        async def tuple(self, number: (int,)) -> (int, str):
            return number, "x"


__all__ = ["NumpyCodec"]
