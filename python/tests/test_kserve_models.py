"""Models that extend KServe's classes: with our package, and, in a second run, with the real one.

The second run uses the interpreter that `KSERVE_PYTHON` names, whose environment has kserve 0.21.
"""

import asyncio
import dataclasses
import datetime
import enum
import json
import logging
import os
import subprocess
import sys
import threading
import types
import uuid
import warnings
from typing import Any, AsyncIterator, Dict, Iterator, List

import pytest
from mlserver import _kserve_imports
from mlserver.testing import InferenceFailed, LoadFailed, serve

_kserve_imports.install()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kserve
    from kserve import InferInput, InferOutput, InferRequest, InferResponse, Model
    from kserve.errors import InferenceError, InvalidInput, ModelNotFound, ModelNotReady, UnsupportedProtocol
    from kserve.model import BaseKServeModel, InferenceModel, InferenceVerb

KSERVE_PYTHON = os.environ.get("KSERVE_PYTHON")

IS_REAL = kserve.Model.__module__ == "kserve.model"


def v1(model: Any, body: Any, verb: str = "predict", **options: Any) -> Any:
    """Calls a model over V1, and returns the parsed answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = model.call("POST", f"/v1/models/m:{verb}", body=content, **options)
    assert (answer.status, answer.headers.get("content-type")) == (200, "application/json")
    return json.loads(answer.body)


def refused(model: Any, body: Any, verb: str = "predict", **options: Any) -> "tuple[int, str]":
    """Calls a model over V1, and returns status and message of the error."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        answer = model.call("POST", f"/v1/models/m:{verb}", body=content, **options)
    except InferenceFailed as error:
        return error.status, str(error.message)
    return answer.status, json.loads(answer.body)["error"]


def tensor(data: List[Any], datatype: str = "FP32", name: str = "x") -> Dict[str, Any]:
    return {"inputs": [{"name": name, "shape": [len(data)], "datatype": datatype, "data": data}]}


class Steps(Model):
    """Adds 1 before, doubles, and says who it was after."""

    def preprocess(self, payload: Any, headers: Any = None) -> Any:
        return {"instances": [[number + 1 for number in row] for row in payload["instances"]]}

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return {"predictions": [[2 * number for number in row] for row in payload["instances"]]}

    def explain(self, payload: Any, headers: Any = None) -> Any:
        return {"explanations": [sum(row) for row in payload["instances"]]}

    def postprocess(self, result: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return {**result, "by": self.name}


class AsyncSteps(Model):
    async def preprocess(self, payload: Any, headers: Any = None) -> Any:
        await asyncio.sleep(0)
        return Steps.preprocess(self, payload)  # type: ignore[arg-type]

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        await asyncio.sleep(0)
        return Steps.predict(self, payload)  # type: ignore[arg-type]

    async def explain(self, payload: Any, headers: Any = None) -> Any:
        return Steps.explain(self, payload)  # type: ignore[arg-type]

    async def postprocess(self, result: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return Steps.postprocess(self, result)  # type: ignore[arg-type]


class Mixed(AsyncSteps):
    """Plain `predict` between coroutines."""

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return {**Steps.predict(self, payload), "thread": threading.current_thread().name}  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", [Steps, AsyncSteps])
@pytest.mark.parametrize("workers", [0, 1])
def test_v1_runs_all_steps(cls, workers):
    with serve(cls, name="m", parallel_workers=workers) as model:
        assert v1(model, {"instances": [[1, 2], [3, 4]]}) == {"predictions": [[4, 6], [8, 10]], "by": "m"}
        assert v1(model, {"instances": [[1, 2], [3, 4]]}, "explain") == {"explanations": [5, 9], "by": "m"}


def test_plain_step_of_async_model_runs_on_the_models_thread():
    with serve(Mixed, name="m") as model:
        answer = v1(model, {"instances": [[1]]})
    assert answer == {"predictions": [[4]], "by": "m", "thread": "m"}


class OldSignatures(Model):
    def preprocess(self, payload: Any) -> Any:
        return payload["instances"]

    def predict(self, request: Any) -> Any:
        return request

    def postprocess(self, result: Any) -> Any:
        return {"predictions": result}


def test_steps_may_omit_headers():
    with serve(OldSignatures, name="m") as model:
        assert v1(model, {"instances": [1]}) == {"predictions": [1]}


class Headers(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name, return_response_headers=True)

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        response_headers["x-seen"] = headers.get("x-sent", "nothing")
        if isinstance(payload, InferRequest):
            return InferResponse(payload.id, self.name, [InferOutput("y", [1], "INT64", [1])])
        return {"predictions": sorted(headers)}


def test_headers_reach_model_and_client():
    with serve(Headers, name="m") as model:
        content = b'{"instances": []}'
        answer = model.call("POST", "/v1/models/m:predict", body=content, headers={"X-Sent": "this"})
        assert answer.headers["x-seen"] == "this"
        assert json.loads(answer.body) == {"predictions": ["x-sent"]}
        response = model.infer(tensor([1]), headers={"X-Sent": "that"})
        assert response.parameters.headers == {"x-seen": "that"}


# Loading


class Loads(Model):
    calls: List[str] = []

    def load(self) -> Any:
        self.calls.append("load")
        self.ready = True
        return self.ready

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return {"predictions": [self.name]}


class LoadsAsync(Loads):
    async def load(self) -> bool:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().load()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cls", [Loads, LoadsAsync])
def test_load_start_and_stop_are_called_once(cls):
    Loads.calls.clear()
    with serve(cls, name="m") as model:
        assert model.ready
        assert v1(model, {"instances": []}) == {"predictions": ["m"]}
    assert Loads.calls == ["load", "start", "stop"]


class LoadsInConstructor(Loads):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.load()


def test_model_that_its_constructor_loads_is_not_loaded_again():
    Loads.calls.clear()
    with serve(LoadsInConstructor, name="m") as model:
        assert model.ready
    assert Loads.calls == ["load", "start", "stop"]


class NotReady(Model):
    result: Any = False

    def load(self) -> Any:
        return self.result

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return {}


class LoadsWithoutFlag(NotReady):
    result = True


class LoadsWithoutAnything(NotReady):
    result = None


@pytest.mark.parametrize(("cls", "ready"), [(NotReady, False), (LoadsWithoutFlag, True), (LoadsWithoutAnything, False)])
def test_readiness_is_that_of_load_and_flag(cls, ready):
    with serve(cls, name="m") as model:
        assert model.ready is ready


class Unhealthy(Loads):
    async def healthy(self) -> bool:
        return False


def test_model_that_is_not_healthy_is_not_ready():
    with serve(Unhealthy, name="m") as model:
        assert not model.ready


class LosesReadiness(Loads):
    def predict(self, payload: Any, headers: Any = None) -> Any:
        self.ready = False
        return {}


def test_model_that_is_no_longer_ready_answers_503():
    with serve(LosesReadiness, name="m") as model:
        assert v1(model, {"instances": []}) == {}
        assert refused(model, {"instances": []}) == (503, "Model with name m is not ready.")


class Options(Model):
    def __init__(self, name: str, factor: int = 1, *, unit: str = "") -> None:
        super().__init__(name)
        self.factor, self.unit = factor, unit

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return {"predictions": [self.factor, self.unit]}


def test_constructor_gets_arguments_from_extra():
    extra = {"factor": 3, "unit": "kg", "other": 1, "name": "wrong"}
    with serve(Options, name="m", parameters={"extra": extra}) as model:
        assert v1(model, {"instances": []}) == {"predictions": [3, "kg"]}


class Raises(Model):
    def load(self) -> bool:
        raise OSError("no such file")

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return {}


def test_exception_of_load_fails_the_load():
    with pytest.raises(LoadFailed, match="no such file"):
        serve(Raises, name="m")


class NoMethods(BaseKServeModel):
    def __init__(self, name: str) -> None:
        super().__init__(name)


def test_class_without_predict_and_call_fails_the_load():
    with pytest.raises(LoadFailed, match=r"neither `predict` nor `__call__`"):
        serve(NoMethods, name="m")


class Metadata(Loads):
    def get_input_types(self) -> Any:
        return [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]

    def get_output_types(self) -> Any:
        return [{"name": "y", "datatype": "INT64", "shape": [-1]}]


def test_metadata_comes_from_the_model():
    with serve(Metadata, name="m") as model:
        assert [(each.name, each.datatype, each.shape) for each in model.metadata.inputs] == [("x", "FP32", [-1, 4])]
        assert [(each.name, each.datatype, each.shape) for each in model.metadata.outputs] == [("y", "INT64", [-1])]


# Own calls


class OwnCall(InferenceModel):
    def __init__(self, name: str) -> None:
        super().__init__(name)

    async def __call__(self, body: Any, headers: Any = None, verb: Any = InferenceVerb.PREDICT) -> Any:
        return {"verb": verb.name, "body": body}


class OwnPlainCall(OwnCall):
    def __call__(self, body: Any, headers: Any = None, verb: Any = InferenceVerb.PREDICT) -> Any:  # type: ignore[override]
        return {"verb": verb.name, "body": body}, {"x-own": "yes"}


class CallOfSteps(Steps):
    """Its coroutine calls plain functions, which must not block the event loop."""

    async def __call__(self, body: Any, headers: Any = None, verb: Any = InferenceVerb.PREDICT) -> Any:
        result, response_headers = await super().__call__(body, headers, verb)
        return {**result, "thread": threading.current_thread().name}, response_headers


def test_own_call_is_used():
    with serve(OwnCall, name="m") as model:
        assert v1(model, {"instances": [1]}) == {"verb": "PREDICT", "body": {"instances": [1]}}
        assert v1(model, {"instances": [1]}, "explain")["verb"] == "EXPLAIN"
    with serve(OwnPlainCall, name="m") as model:
        assert v1(model, {"instances": [1]})["verb"] == "PREDICT"
        answer = model.call("POST", "/v1/models/m:predict", json={"instances": []})
        assert answer.headers["x-own"] == "yes"


class RayAnswer:
    """A response of Ray Serve: it comes also if nobody awaits it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(0).__await__()
        return self._answer


class Remote:
    """A method of a handle of Ray Serve."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def remote(self, *args: Any, **named: Any) -> RayAnswer:
        return RayAnswer(self._function(*args, **named))


class Deployment(Remote):
    """A handle of Ray Serve."""

    def __init__(self) -> None:
        super().__init__(self._call)
        self.calls: List[Any] = []
        self.load = Remote(lambda: self.calls.append("load"))
        self.get_input_types = Remote(lambda: [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}])
        self.get_output_types = Remote(lambda: [{"name": "y", "datatype": "FP32", "shape": [-1]}])

    def _call(self, body: Any, headers: Any = None) -> Any:
        self.calls.append(headers)
        if isinstance(body, dict):
            return {"predictions": body["instances"], "custom": headers.get("x-custom")}
        return InferResponse(body.id, "m", [InferOutput("y", [1], "FP32", [sum(body.inputs[0].data)])])


def test_models_of_ray_call_their_deployment(monkeypatch: pytest.MonkeyPatch):
    # KServe's own module needs Ray's names, although only for annotations.
    for name in ("ray", "ray.serve", "ray.serve.handle"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("DeploymentHandle", "DeploymentResponse"):
        setattr(sys.modules["ray.serve.handle"], name, object)
    from kserve.ray import RayModel  # type: ignore[import-not-found,import-untyped,unused-ignore]

    deployment = Deployment()

    class Deployed(RayModel):  # type: ignore[misc,unused-ignore]
        def __init__(self, name: str) -> None:
            super().__init__(name, deployment)

    with serve(Deployed, name="m") as model:
        assert model.ready
        assert deployment.calls == ["load"]
        found = v1(model, {"instances": [1]}, headers={"x-custom": "a", "content-type": "application/json"})
        assert found == {"predictions": [1], "custom": "a"}
        assert list(model.infer(tensor([1.5, 2])).outputs[0].data) == [3.5]
        assert [each.name for each in (*model.metadata.inputs, *model.metadata.outputs)] == ["x", "y"]


def test_own_call_of_plain_steps_runs_on_the_models_thread():
    with serve(CallOfSteps, name="m") as model:
        for _ in range(2):
            answer = v1(model, {"instances": [[1]]})
            assert answer == {"predictions": [[4]], "by": "m", "thread": "m"}


# V2


class Returns(Model):
    """Returns what the name of the first input says."""

    results: Dict[str, Any] = {}

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return self.results[payload.inputs[0].name](payload)


def outputs(response: Any) -> List[Any]:
    return [(each.name, each.datatype, each.shape, list(each.data)) for each in response.outputs]


def test_v2_response_and_its_dictionary():
    results = {
        "response": lambda payload: InferResponse(
            payload.id, "m", [InferOutput("y", [2], "INT64", [1, 2], {"unit": "kg"})], parameters={"a": "b"}
        ),
        "dictionary": lambda payload: {
            "id": "1",
            "model_name": "m",
            "outputs": [{"name": "y", "shape": [2], "datatype": "INT64", "data": [1, 2]}],
        },
        "text": lambda _: ["a", "b"],
    }
    Returns.results = results
    with serve(Returns, name="m") as model:
        response = model.infer(tensor([1], name="response"))
        assert outputs(response) == [("y", "INT64", [2], [1, 2])]
        assert response.parameters.a == "b"
        assert response.outputs[0].parameters.unit == "kg"
        assert outputs(model.infer(tensor([1], name="dictionary"))) == [("y", "INT64", [2], [1, 2])]
        assert outputs(model.infer(tensor([1], name="text"))) == [("output-0", "BYTES", [2], ["a", "b"])]


def test_v2_request_has_all_fields():
    seen: List[Any] = []

    def answer(payload: Any) -> Any:
        seen.append(payload)
        return {"outputs": [{"name": "y", "shape": [1], "datatype": "BOOL", "data": [True]}]}

    Returns.results = {"x": answer}
    request = {
        "id": "7",
        "parameters": {"p": 1},
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1, 2]], "parameters": {"q": "r"}},
            {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]},
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
    }
    with serve(Returns, name="m", parameters={"version": "v3"}) as model:
        model.infer(request, headers={"x-h": "1"})
    (payload,) = seen
    assert isinstance(payload, InferRequest)
    assert (payload.id, payload.model_name, payload.model_version) == ("7", "m", "v3")
    assert payload.parameters == {"p": 1}
    assert [each.name for each in payload.request_outputs] == ["y"]
    assert isinstance(payload.inputs[0], InferInput)
    assert payload.inputs[0].data == [[1.0, 2.0]]
    assert payload.inputs[0].parameters == {"q": "r"}
    assert payload.get_input_by_name("text").data == ["a", "é"]


def test_v2_requested_output_that_does_not_exist_is_400():
    def answer(payload: Any) -> Any:
        found = [InferOutput("y", [1], "INT64", [1]), InferOutput("z", [1], "INT64", [2])]
        return InferResponse("1", "m", found, requested_outputs=payload.request_outputs)

    Returns.results = {"x": answer}
    with serve(Returns, name="m") as model:
        assert [each[0] for each in outputs(model.infer({**tensor([1]), "outputs": [{"name": "z"}]}))] == ["z"]
        with pytest.raises(InferenceFailed, match="Unexpected inference output 'nope' for model 'm'") as error:
            model.infer({**tensor([1]), "outputs": [{"name": "nope"}]})
        assert error.value.status == 400


@pytest.mark.needs("numpy", "pandas")
def test_v2_arrays_and_frames():
    import numpy as np
    import pandas as pd

    seen = []

    def double(payload: Any) -> Any:
        found = payload.inputs[0].as_numpy()
        seen.append(found.dtype)
        return kserve.utils.get_predict_response(payload, found * 2, "m")

    Returns.results = {
        "double": double,
        "array": lambda _: np.array([[1.5]], dtype=np.float32),
        "frame": lambda _: pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        "list": lambda _: [[1], [2]],
    }
    with serve(Returns, name="m") as model:
        for datatype in ("INT8", "UINT64", "FP16", "FP32", "FP64"):
            response = model.infer(tensor([1, 2], datatype, "double"))
            assert outputs(response) == [("output-0", datatype, [2], [2, 4])]
        assert seen == [np.int8, np.uint64, np.float16, np.float32, np.float64]
        assert outputs(model.infer(tensor([1], name="array"))) == [("output-0", "FP32", [1, 1], [1.5])]
        assert outputs(model.infer(tensor([1], name="list"))) == [("output-0", "INT64", [2, 1], [1, 2])]
        assert outputs(model.infer(tensor([1], name="frame"))) == [
            ("a", "INT64", [2], [1, 2]),
            ("b", "BYTES", [2], ["x", "y"]),
        ]


@pytest.mark.needs("numpy")
def test_v2_raw_outputs_are_sent():
    import numpy as np

    def answer(payload: Any) -> Any:
        text, flags, halves = (
            InferOutput(*each) for each in (("t", [2], "BYTES"), ("b", [1], "BOOL"), ("h", [1], "FP16"))
        )
        text.set_data_from_numpy(np.array([b"a", b"\xff"], dtype=object))
        flags.set_data_from_numpy(np.array([True]))
        halves.set_data_from_numpy(np.array([1.5], dtype=np.float16))
        return InferResponse("1", "m", [text, flags, halves])

    Returns.results = {"x": answer}
    with serve(Returns, name="m") as model:
        assert outputs(model.infer(tensor([1]))) == [
            ("t", "BYTES", [2], [b"a", b"\xff"]),
            ("b", "BOOL", [1], [True]),
            ("h", "FP16", [1], [1.5]),
        ]


# Streams


class Streams(Model):
    def predict(self, payload: Any, headers: Any = None) -> Iterator[Any]:
        count = len(payload["instances"]) if isinstance(payload, dict) else int(payload.inputs[0].data[0])
        for number in range(count):
            yield {"outputs": [{"name": "y", "shape": [1], "datatype": "INT64", "data": [number]}]}


class AsyncStreams(Model):
    async def predict(self, payload: Any, headers: Any = None) -> AsyncIterator[Any]:  # type: ignore[override]
        return self._answers(payload)

    async def _answers(self, payload: Any) -> AsyncIterator[Any]:
        for answer in Streams.predict(self, payload):  # type: ignore[arg-type]
            await asyncio.sleep(0)
            yield answer


class AsyncGenerator(AsyncStreams):
    predict = AsyncStreams._answers  # type: ignore[assignment]


@pytest.mark.parametrize("cls", [Streams, AsyncStreams, AsyncGenerator])
def test_generators_stream(cls):
    with serve(cls, name="m") as model:
        answers = list(model.infer_stream([tensor([3], "INT64")]))
        assert [list(answer.outputs[0].data) for answer in answers] == [[0], [1], [2]]
        with pytest.raises(InferenceFailed, match="generate_stream") as error:
            model.infer(tensor([2], "INT64"))
        assert error.value.status == 501
        answer = model.call("POST", "/v1/models/m:predict", json={"instances": [1, 2]})
        assert (answer.status, answer.body.count(b"outputs")) == (200, 2)


# Errors


class Fails(Model):
    error: Any = None

    def predict(self, payload: Any, headers: Any = None) -> Any:
        raise self.error


class FailsAsync(Model):
    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        raise Fails.error


class BadText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


_ERRORS = [
    (InvalidInput("bad"), 400, "bad"),
    (ModelNotFound("q"), 404, "Model with name q does not exist."),
    (ModelNotReady("q"), 503, "Model with name q is not ready."),
    (InferenceError("bad"), 500, "bad"),
    (InferenceError("bad", status="418"), 500, "[418] bad"),
    (UnsupportedProtocol("x"), 501, "Unsupported protocol x."),
    (NotImplementedError("later"), 501, "later"),
    (ZeroDivisionError("division by zero"), 500, "ZeroDivisionError : division by zero"),
    (KeyError("k"), 500, "KeyError : 'k'"),
    (ValueError(), 500, "ValueError : "),
    (BadText(), 500, "BadText : "),
]


@pytest.mark.parametrize("cls", [Fails, FailsAsync])
@pytest.mark.parametrize(("error", "status", "message"), _ERRORS)
def test_errors_have_kserves_status_and_words(cls, error, status, message):
    Fails.error = error
    with serve(cls, name="m") as model:
        assert refused(model, {"instances": []}) == (status, message)
        with pytest.raises(InferenceFailed) as failure:
            model.infer(tensor([1]))
        assert (failure.value.status, failure.value.message) == (status, message)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
@pytest.mark.parametrize("cls", [Fails, FailsAsync])
def test_exceptions_that_end_programs_end_only_the_call(cls, error):
    Fails.error = error
    with serve(cls, name="m") as model:
        assert refused(model, {"instances": []})[0] == 500
        Fails.error = ValueError("next")
        assert refused(model, {"instances": []}) == (500, "ValueError : next")


@pytest.mark.needs("fastapi")
def test_http_exception_keeps_its_status_and_detail():
    from fastapi import HTTPException

    Fails.error = HTTPException(418, {"a": 1}, headers={"x-z": "1"})
    with serve(Fails, name="m") as model:
        answer = model.call("POST", "/v1/models/m:predict", json={"instances": []})
        assert (answer.status, answer.headers["x-z"], json.loads(answer.body)) == (418, "1", {"detail": {"a": 1}})
        Fails.error = HTTPException(418, "tea")
        with pytest.raises(InferenceFailed, match="tea") as failure:
            model.infer(tensor([1]))
        assert failure.value.status == 418


# Bodies of V1


class Echo(Model):
    def predict(self, payload: Any, headers: Any = None) -> Any:
        return {"got": payload.decode("latin-1")} if isinstance(payload, bytes) else {"echo": payload}


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/cloudevents+json",
        "application/ld+json",
        "application/octet-stream",
    ],
)
def test_v1_body_is_json_for_these_content_types(content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    with serve(Echo, name="m") as model:
        assert v1(model, b'{"instances": [1]}', headers=headers) == {"echo": {"instances": [1]}}


def test_v1_body_of_another_content_type_is_bytes():
    with serve(Echo, name="m") as model:
        assert v1(model, b"\xff\x00", headers={"content-type": "image/png"}) == {"got": "\xff\x00"}


def test_v1_binary_event_is_json_of_any_content_type():
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", "content-type": "text/plain"}
    with serve(Echo, name="m") as model:
        assert v1(model, b'{"instances": [1]}', headers=event) == {"echo": {"instances": [1]}}
        assert v1(model, b"{not", headers=event) == {"got": "{not"}
        del event["ce-id"]
        assert v1(model, b'{"instances": [1]}', headers=event) == {"got": '{"instances": [1]}'}


@pytest.mark.parametrize(
    "body",
    [
        b"{not",
        b"",
        b"\xff",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b'{"instances": [NaN]}',
        b'{"instances": [1]} x',
    ],
)
def test_v1_invalid_body_is_400(body):
    with serve(Echo, name="m") as model:
        status, message = refused(model, body)
        assert status == 400
        assert message.startswith("Unrecognized request format: ")


def test_v1_instances_that_are_no_list_are_400():
    with serve(Echo, name="m") as model:
        assert refused(model, {"instances": "word"}) == (400, 'Expected "instances" to be a list')
        assert v1(model, {"inputs": [1]}) == {"echo": {"inputs": [1]}}
        assert v1(model, [1]) == {"echo": [1]}
        assert v1(model, {}) == {"echo": {}}


def test_v1_explain_without_explainer_is_501():
    with serve(Echo, name="m") as model:
        assert refused(model, {"instances": []}, "explain") == (501, "Could not find explainer_host.")


class Results(Model):
    result: Any = None

    def predict(self, payload: Any, headers: Any = None) -> Any:
        return Results.result


class Weird:
    pass


_cycle: Dict[str, Any] = {}
_cycle["self"] = _cycle
_deep: Any = []
for _ in range(100_000):
    _deep = [_deep]


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"predictions": [float("nan"), float("inf"), 1.5]}, b'{"predictions":[null,null,1.5]}'),
        ({"predictions": [1 << 80]}, b'{"predictions":[1208925819614629174706176]}'),
        ([1, 2], b"[1,2]"),
        ((1, 2), b"[1,2]"),
        (None, b"null"),
        (3, b"3"),
        ({1: "é"}, '{"1":"é"}'.encode()),
        (b"raw", b"raw"),
        ("text", b"text"),
        (
            InferResponse("1", "m", [InferOutput("o", [1], "FP16", [1.0])]),
            b'{"id":"1","model_name":"m","model_version":null,"outputs":[%s]}'
            % b'{"name":"o","shape":[1],"datatype":"FP16","data":[1.0]}',
        ),
    ],
)
def test_v1_results(result, answer):
    Results.result = result
    with serve(Results, name="m") as model:
        assert model.call("POST", "/v1/models/m:predict", json={"instances": []}).body == answer


@pytest.mark.needs("numpy", "pandas")
def test_v1_results_of_numpy_and_pandas():
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    Results.result = {"a": np.array([[1, 2]]), "s": np.float32(1.5), "f": frame, "n": np.array([np.nan])}
    with serve(Results, name="m") as model:
        assert v1(model, {"instances": []}) == {
            "a": [[1, 2]],
            "s": 1.5,
            "f": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
            "n": [None],
        }


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (_cycle, "contains itself"),
        (_deep, "nested too deeply"),
        ({"a": {1}}, "not JSON serializable: set"),
        ({"a": Weird()}, "not JSON serializable: Weird"),
        ({"a": b"x"}, "not JSON serializable: bytes"),
        ({"a": "\ud800"}, "not Unicode"),
        ({(1, 2): 3}, "keys must be"),
    ],
)
def test_v1_results_that_json_lacks_are_errors(result, message):
    Results.result = result
    with serve(Results, name="m") as model:
        status, text = refused(model, {"instances": []})
        assert status == 500
        assert message in text


@pytest.mark.parametrize("result", [None, 3, {"predictions": [1]}, object(), {"outputs": [{"name": "y"}]}])
def test_v2_results_of_wrong_types_are_errors(result):
    Results.result = result
    with serve(Results, name="m") as model:
        with pytest.raises(InferenceFailed) as error:
            model.infer(tensor([1]))
        assert error.value.status == 500
        assert " : " in error.value.message


# Metrics


if IS_REAL:

    def test_steps_are_observed_by_prometheus_client():
        from mlserver.metrics.prometheus import families

        with serve(Steps, name="observed") as model:
            model.call("POST", "/v1/models/observed:predict", json={"instances": [[1]]})
            assert model.metrics == {}
        family = next(each for each in families() if each["name"] == "request_predict_seconds")
        assert ("request_predict_seconds_count", [("model_name", "observed")], "1.0") in family["samples"]

else:

    def test_steps_are_observed():
        with serve(Steps, name="m") as model:
            v1(model, {"instances": [[1]]})
            v1(model, {"instances": [[1]]}, "explain")
            counts = {name: len(values) for name, values in model.metrics.items()}
        assert counts == {
            "request_preprocess_seconds": 2,
            "request_predict_seconds": 1,
            "request_explain_seconds": 1,
            "request_postprocess_seconds": 2,
        }


# The process


def test_models_of_other_kinds_do_not_import_the_adapter():
    path = [entry for entry in sys.path if entry]
    code = (
        f"import sys; sys.path[:0] = {path!r}\n"
        "import mlserver, mlserver.testing\n"
        "class M(mlserver.MLModel):\n    async def predict(self, payload): ...\n"
        "with mlserver.testing.serve(M): pass\n"
        "small = 'mlserver._kserve_imports', 'mlserver._kserve_classes'\n"
        "assert not [name for name in sys.modules if 'kserve' in name and name not in small]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr


if not IS_REAL:

    @pytest.mark.needs("KSERVE_PYTHON")
    def test_all_with_the_real_package():
        environment = {name: value for name, value in os.environ.items() if name != "KSERVE_PYTHON"}
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [
            str(KSERVE_PYTHON),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "default",
            os.path.abspath(__file__),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
        assert done.returncode == 0, done.stdout[-5000:]


# What KServe does at shutdown, for readiness, in V1 answers, and over streams


class Health(Loads):
    is_healthy = True

    async def healthy(self) -> bool:
        return self.is_healthy


def test_readiness_is_asked_again():
    with serve(Health, name="m") as model:
        assert model.ready
        model.instance.model.is_healthy = False
        assert not model.ready
        model.instance.model.is_healthy = True
        assert model.ready
        model.instance.model.ready = False
        assert not model.ready


class Engine(Loads):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.engine = True

    async def start_engine(self) -> None:
        self.calls.append("start_engine")

    def stop_engine(self) -> None:
        self.calls.append("stop_engine")


def test_engine_stops_after_its_model():
    Loads.calls.clear()
    with serve(Engine, name="m"):
        pass
    assert Loads.calls == ["load", "start", "start_engine", "stop", "stop_engine"]


@pytest.mark.parametrize("content_type", [{"ce-content-type": "application/json"}, {"content-type": "application/json"}])
@pytest.mark.parametrize("body", [b"{", b"\xff"])
def test_event_that_is_not_json_is_refused(body, content_type):
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "x", "ce-type": "y", **content_type}
    with serve(Steps, name="m") as model:
        status, message = refused(model, body, headers=event)
    assert status == 400
    assert message.startswith("Failed to decode or parse binary json cloudevent: ")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    color: Color
    _hidden: int = 1


class OrjsonTypes(Loads):
    def predict(self, payload: Any, headers: Any = None) -> Any:
        moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
        return {"predictions": [moment, moment.date(), moment.time(), uuid.UUID(int=1), Color.RED, Point(1, Color.RED)]}


def test_v1_answers_have_the_types_of_orjson():
    with serve(OrjsonTypes, name="m") as model:
        assert v1(model, {"instances": []}) == {
            "predictions": [
                "2026-01-02T03:04:05+00:00",
                "2026-01-02",
                "03:04:05",
                "00000000-0000-0000-0000-000000000001",
                "red",
                {"x": 1, "color": "red"},
            ]
        }


class ReturnsIterator(Loads):
    """Has no annotation."""

    async def predict(self, payload: Any, headers: Any = None) -> Any:  # type: ignore[override]
        async def items() -> AsyncIterator[InferResponse]:
            for number in range(3):
                yield InferResponse("1", "m", [InferOutput("y", [1], "INT64", [number])])

        return items()


def test_async_iterator_without_annotation_is_streamed():
    with serve(ReturnsIterator, name="m") as model:
        assert [list(answer.outputs[0].data) for answer in model.infer_stream([tensor([1])])] == [[0], [1], [2]]


class ReturnsItems(Loads):
    """Answers V1 with an iterator over the instances."""

    def predict(self, payload: Any, headers: Any = None) -> Any:
        yield from payload["instances"]


class ReturnsItemsLater(Loads):
    async def predict(self, payload: Any, headers: Any = None) -> Any:  # type: ignore[override]
        async def items() -> AsyncIterator[Any]:
            for item in payload["instances"]:
                yield item

        return items()


@pytest.mark.parametrize("cls", [ReturnsItems, ReturnsItemsLater])
def test_iterators_over_v1_are_sent_as_events(cls):
    items = [{"predictions": [1, None]}, {"text": "two\nlines ä"}, [1.5], 3]
    with serve(cls, name="m") as model:
        reply = model.call("POST", "/v1/models/m:predict", json={"instances": items})
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        *events, rest = reply.body.split(b"\n\n")
        assert rest == b""
        assert [event[:6] for event in events] == [b"data: "] * 4
        assert [json.loads(event[6:]) for event in events] == items


@pytest.mark.parametrize("cls", [ReturnsItems, ReturnsItemsLater])
def test_text_of_iterators_over_v1_is_sent_as_it_is(cls):
    with serve(cls, name="m") as model:
        items = ["data: one\n\n", "two", "ä", "", "event: end\ndata: {}\n\n"]
        reply = model.call("POST", "/v1/models/m:predict", json={"instances": items})
        assert (reply.status, reply.body) == (200, "".join(items).encode())


class CoroutineTypes(Loads):
    async def get_input_types(self) -> Any:
        return [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_types_may_be_coroutines():
    with serve(CoroutineTypes, name="m") as model:
        assert [each.name for each in model.metadata.inputs] == ["x"]


@pytest.mark.parametrize(
    "instances", [[{"a": {"0": 1.5, "1": 2.5}, "b": {"0": 3, "1": 4}}], [[{"a": 1.5, "b": 3}, {"b": 4, "a": 2.5}]]]
)
def test_get_predict_input_reads_tables_by_row(instances):
    pytest.importorskip("pandas")
    from kserve.utils.utils import get_predict_input

    frame = get_predict_input({"instances": instances})
    assert frame.to_dict("list") == {"a": [1.5, 2.5], "b": [3, 4]}


def test_times_of_numpy_are_bytes():
    numpy = pytest.importorskip("numpy")
    output = InferOutput("d", [1], "BYTES")
    output.set_data_from_numpy(numpy.array(["2020-01-01"], dtype="datetime64[s]"), binary_data=False)
    assert output.data == ["2020-01-01 00:00:00"]


def test_requests_are_compared_without_their_version():
    assert InferRequest("m", [], model_version="") == InferRequest("m", [])


def test_configured_logger_stays_as_it_is():
    logger, mine = logging.getLogger("kserve"), logging.NullHandler()
    logger.addHandler(mine)
    try:
        kserve.logging.configure_logging(None)
        assert mine in logger.handlers
    finally:
        logger.removeHandler(mine)


def test_version_of_the_package_is_known():
    import importlib.metadata

    assert importlib.metadata.version("kserve") == "0.21.0"


def test_request_of_the_data_models():
    from kserve.protocol.rest.v2_datamodels import InferenceRequest

    body = InferenceRequest(inputs=[{"name": "x", "shape": [2], "datatype": "INT32", "data": [1, 2]}], id="7")
    request = InferRequest.from_inference_request(body, "m")
    assert (request.id, request.model_name, request.inputs[0].data) == ("7", "m", [1, 2])
