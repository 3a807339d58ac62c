"""`mlserver.testing` runs models as a worker does."""

import asyncio
import json
import os
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import mlserver
import pytest
from executable import direct, needs_executable, serving
from mlserver import MLModel
from mlserver._worker.frames import FrameKind
from mlserver.codecs import StringCodec, decode_args
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.rest.responses import Response
from mlserver.testing import InferenceFailed, LoadFailed, UnloadFailed, serve
from mlserver.testing._messages import as_request, write_request
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestInput, ResponseOutput
from trouble_models import TROUBLES, PlainTrouble, Trouble
from trouble_models import Slow as Waits
from worker import ANSWER, CANCEL, ERROR, LOADED, PREDICT, Worker, frame


def body(*data, datatype="FP64", **fields):
    return {"inputs": [{"name": "x", "shape": [len(data)], "datatype": datatype, "data": list(data)}], **fields}


def echo(*inputs):
    """Returns the data of inputs as a model sees them, and of its response."""
    with serve(Echo) as model:
        response = model.infer(list(inputs))
        return [each.data.root for each in model.instance.seen.inputs], [each.data.root for each in response.outputs]


class Echo(MLModel):
    async def predict(self, payload):
        self.seen = payload
        outputs = [
            ResponseOutput(name=tensor.name, shape=tensor.shape, datatype=tensor.datatype, data=tensor.data)
            for tensor in payload.inputs
        ]
        return InferenceResponse(
            model_name="overridden", parameters=Parameters(headers={"X-Answer": "because"}), outputs=outputs
        )


class Answer(MLModel):
    """Answers with the outputs in its parameters."""

    def predict(self, payload):
        return InferenceResponse(model_name="", outputs=[ResponseOutput(**self.settings.parameters.output)])


class Words(MLModel):
    closed = False

    async def predict_stream(self, payloads):
        try:
            async for payload in payloads:
                for word in self.decode(payload.inputs[0], default_codec=StringCodec)[0].split():
                    if word == "fail":
                        raise MLServerError("cannot go on", 418)
                    output = StringCodec.encode_output("word", [word])
                    yield InferenceResponse(model_name=self.name, outputs=[output])
        finally:
            Words.closed = True


class Greeter(MLModel):
    @custom_handler(rest_path="/greet/{name}", rest_method="GET")
    async def greet(self, name: str, times: int = 1) -> dict:
        return {"greeting": " ".join(["Hi"] * times + [name])}

    @custom_handler(rest_path="/notes")
    def note(self, texts: list) -> Response:
        return Response({"count": len(texts)}, 201, {"X-Kind": "note"})

    @custom_handler(rest_path="/files/{path:path}", rest_method="GET")
    def file(self, path: str) -> str:
        raise MLServerError(f"no file {path}", 404)

    @custom_handler(rest_path="/status/{status}")
    def status(self, status: int) -> Response:
        return Response("", status)


class Slow(MLModel):
    """Waits as its request says."""

    async def predict(self, payload):
        if payload.id == "busy":
            time.sleep(3)
        try:
            await asyncio.sleep(60)
        finally:
            self.was_cancelled = mlserver.cancelled()


def test_infer_accepts_requests_dictionaries_and_inputs() -> None:
    tensor = RequestInput(name="x", shape=[2], datatype="INT32", data=[1, 2])
    with serve(Echo, parameters={"version": "v3"}) as model:
        for request in (InferenceRequest(id="7", inputs=[tensor]), body(1, 2, datatype="INT32", id="7")):
            response = model.infer(request)
            assert (response.model_name, response.model_version, response.id) == ("overridden", "v3", "7")
            assert response.outputs[0].data.root == [1, 2]
        assert model.infer([tensor]).outputs == model.infer(tensor).outputs
        assert model.infer([tensor]).id
        with pytest.raises(TypeError, match="expected an InferenceRequest"):
            model.infer([1.0])
        with pytest.raises(InferenceFailed) as failed:
            model.infer({"inputs": [{"name": "x"}]})
        assert failed.value.status == 422
    with pytest.raises(ValueError, match="closed"):
        model.infer([tensor])


def test_infer_passes_headers_and_parameters() -> None:
    with serve(Echo) as model:
        parameters = Parameters(content_type="np", top_k=3)
        request = InferenceRequest(id="1", inputs=[], parameters=parameters)
        response = model.infer(request, headers={"X-Tenant": "a"})
        seen = model.instance.seen
        assert (seen.parameters.headers, seen.parameters.top_k) == ({"x-tenant": "a"}, 3)
        assert parameters.headers is None, "the request of the test stays as it is"
        assert response.parameters.headers == {"X-Answer": "because"}


def test_infer_data_arrives_as_clients_send_it() -> None:
    rows = [[1.5, 2.0], [3.0, 4.0]]

    def sent(datatype, shape, data):
        return RequestInput(name=datatype, shape=shape, datatype=datatype, data=data)

    for tensor, seen, answered in [
        (sent("FP32", [2, 2], rows), rows, rows),
        (sent("FP32", [4], rows), rows, rows),
        (sent("FP32", [-1, 2], rows), rows, rows),
        (sent("FP32", [2], [1.1, 2]), [1.1, 2], [pytest.approx(1.1), 2]),
        (sent("FP32", [2], [None, "NaN"]), [None, "NaN"], [None, "NaN"]),
        (sent("INT8", [-1], [1, 2]), [1, 2], [1, 2]),
        (sent("BYTES", [2], ["a", "ü"]), ["a", "ü"], ["a", "ü"]),
        (sent("BYTES", [1], [b"\xff"]), [b"\xff"], [b"\xff"]),
        (StringCodec.encode_input("x", ["a"], use_bytes=True), [b"a"], ["a"]),
        # What datatype and shape do not declare is passed as it is.
        (sent("BYTES", [2], ["a", None]), ["a", None], ["a", None]),
        (sent("FP32", [2], "text"), "text", "text"),
        (sent("BYTES", [1], "text"), "text", "text"),
        (sent("FP32", [3], [[1, 2], [3]]), [[1, 2], [3]], [[1, 2], [3]]),
        (sent("INT8", [1], [1.0]), [1], [1]),
        (sent("INT8", [1], [300]), [300], [300]),
        (sent("INT32", [1], [1.5]), [1.5], [1.5]),
        (sent("FP32", [3], [1.0]), [1.0], [1.0]),
        (sent("INT8", [-1, 3], [1, 2]), [1, 2], [1, 2]),
        (sent("INT8", [-1, -1], [1, 2]), [1, 2], [1, 2]),
    ]:
        assert echo(tensor) == ([seen], [answered]), tensor


@pytest.mark.needs("numpy")
def test_infer_decodes_arguments() -> None:
    import numpy as np
    from mlserver.codecs import NumpyCodec

    class Sum(MLModel):
        @decode_args
        async def predict(self, x: np.ndarray) -> np.ndarray:
            return x.sum(axis=0, keepdims=True)

    with serve(Sum) as model:
        response = model.infer([NumpyCodec.encode_input("x", np.ones((3, 2)))])
    assert NumpyCodec.decode_output(response.outputs[0]).tolist() == [[3.0, 3.0]]


def test_model_errors_are_those_of_clients() -> None:
    with serve(Trouble) as model:
        with pytest.raises(InferenceFailed) as failed:
            model.infer({"id": "status", "inputs": []})
        assert (failed.value.status, failed.value.message) == (404, "gone")
        with pytest.raises(InferenceFailed) as failed:
            model.infer({"id": "system_exit", "inputs": []})
        assert (failed.value.status, failed.value.message) == (500, "builtins.SystemExit: 3")
        assert "in predict" in failed.value.traceback
        assert str(failed.value).startswith("builtins.SystemExit: 3 (status 500)\n\nTraceback")
        with pytest.raises(InferenceFailed, match="response that cannot be sent: names and parameters of") as failed:
            model.infer({"id": "too_long", "inputs": []})
        assert model.infer({"id": "fine", "inputs": []}).outputs, "the model still answers"


def test_too_long_requests_fail() -> None:
    with serve(Trouble) as model, pytest.raises(InferenceFailed, match="exceed the limit") as failed:
        model.infer({"id": "x" * (17 << 20), "inputs": []})
    assert failed.value.status == 400


@pytest.mark.parametrize(
    "output",
    [
        {"shape": [3], "datatype": "INT8", "data": [1, 2]},
        {"shape": [2], "datatype": "INT8", "data": [1, 999]},
        {"shape": [-1, -1], "datatype": "FP32", "data": [[1.0, None]]},
        {"shape": [1], "datatype": "BYTES", "data": {"label": "a"}},
    ],
)
def test_data_of_responses_is_what_the_model_gave(output) -> None:
    with serve(Answer, parameters={"output": {"name": "y", **output}}) as model:
        (found,) = model.infer([]).outputs
    assert (found.shape, found.data.root) == (output["shape"], output["data"])


@pytest.mark.parametrize("implementation", [Trouble, PlainTrouble])
def test_answers_equal_those_of_a_worker_process(implementation) -> None:
    """Responses and errors have the same frames, for everything that user code can raise."""
    names = [*TROUBLES, "fine", "too_long", "later value", "later system_exit"]
    with Worker() as worker, serve(implementation, name="m", parameters={}) as model:
        loaded = worker.load(f"trouble_models.{implementation.__name__}")
        assert loaded.kind == LOADED
        own = model._worker
        for number, name in enumerate(names):
            head, tail = write_request(as_request(body(1.5, 2.5, id=name), {"x-a": "b"}))
            worker.send(frame(PREDICT, 512 + number, {"model": 7, **head}, b"".join(tail)))
            expected = worker.receive()
            assert expected.kind in (ANSWER, ERROR)
            found = own.call(FrameKind.PREDICT, {"model": 1, **head}, tail).next()
            if name == "unreadable":
                # The last lines of tracebacks differ: pytest replaces functions of `traceback` on old Pythons.
                for head in (found.head, expected.head):
                    head["traceback"] = head["traceback"].rpartition("Unreadable:")[0]
            assert (found.kind, found.head, bytes(found.tail)) == (expected.kind, expected.head, expected.tail), name


CLIENT_MODEL = """
from http import HTTPStatus
from mlserver import MLModel
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.rest.responses import Response
from mlserver.types import InferenceResponse, ResponseOutput


class Client(MLModel):
    def predict(self, payload):
        name = payload.id
        if name == "error":
            raise ValueError("boom")
        if name == "status":
            raise MLServerError("gone", HTTPStatus.NOT_FOUND)
        if name == "exit":
            raise SystemExit(3)
        if name == "nothing":
            return None
        if name == "other":
            return {}
        data = {"shape": [1], "unsendable": ["a"]}.get(name, payload.inputs[0].data)
        return InferenceResponse(
            model_name="overridden",
            id="overridden",
            outputs=[ResponseOutput(name="y", shape=[2], datatype=payload.inputs[0].datatype, data=data)],
        )

    @custom_handler(rest_path="/greet/{name}", rest_method="GET")
    async def greet(self, name: str, times: int = 1) -> dict:
        if name == "nobody":
            raise MLServerError("nobody is here", 410)
        return {"greeting": name * times}

    @custom_handler(rest_path="/status/{status:int}")
    def status(self, status: int) -> Response:
        return Response({"a": 1}, status, {"X-Kind": "é"})
"""


@needs_executable
def test_clients_of_the_server_receive_the_same(tmp_path) -> None:
    """Responses, statuses and messages are those that a client receives over REST."""

    def fetch(method, path, content=None):
        request = urllib.request.Request(f"http://{server}{path}", method=method)
        if content is not None:
            request.data = json.dumps(content).encode()
            request.add_header("Content-Type", "application/json")
        try:
            response = direct.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.headers, response.read()

    def ask(function, *arguments):
        try:
            return 200, function(*arguments)
        except InferenceFailed as failed:
            return failed.status, failed.message

    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "client_models.py").write_text(CLIENT_MODEL)
    (folder / "model-settings.json").write_text(
        '{"implementation": "client_models.Client", "parameters": {"version": "v1"}}'
    )
    with serving(folder) as server, serve(folder) as model:
        for name in ["fine", "error", "status", "exit", "nothing", "other", "shape", "unsendable"]:
            content = body(1.5, 2.5, id=name)
            status, _, answer = fetch("POST", "/v2/models/client/infer", content)
            found_status, found = ask(model.infer, content)
            found = found if status != 200 else found.model_dump()
            expected = json.loads(answer)
            expected = expected["error"] if status != 200 else expected
            if status == 200:
                assert expected.pop("parameters") == {}
            assert (found_status, found) == (status, expected), name
        for content in [{"inputs": 1}, body(1, 2, datatype="FP31"), {"inputs": [{"name": "x"}]}]:
            assert ask(model.infer, content)[0] == fetch("POST", "/v2/models/client/infer", content)[0] == 422
        for method, path in [
            ("GET", "/greet/Ada%20L%C3%A9?times=2"),
            ("GET", "/greet/nobody"),
            ("GET", "/greet/x?times=many"),
            ("GET", "/greet/a/b"),
            ("POST", "/greet/x"),
            ("POST", "/status/201"),
            ("POST", "/status/77"),
            ("POST", "/status/x"),
        ]:
            status, headers, answer = fetch(method, path)
            found_status, found = ask(model.call, method, path)
            if isinstance(found, str):
                assert (found_status, found) == (status, json.loads(answer)["error"]), path
            else:
                assert (found.status, found.body) == (status, answer), path
                assert {**dict(headers.items()), **found.headers} == dict(headers.items())


def test_cancelled_calls_end_as_in_a_worker_process() -> None:
    with Worker() as worker, serve(Waits, name="m") as model:
        worker.load("trouble_models.Slow")
        worker.send(frame(PREDICT, 512, {"model": 7, "id": "wait", "inputs": []}), frame(CANCEL, 512))
        call = model._worker.call(FrameKind.PREDICT, {"model": 1, "id": "wait", "inputs": []})
        call.send(FrameKind.CANCEL, {})
        assert call.next().head == worker.receive().head


def test_infer_timeout_cancels_the_model() -> None:
    with serve(Slow) as model:
        with pytest.raises(InferenceFailed) as failed:
            model.infer([], timeout=0.05)
        assert (failed.value.status, failed.value.message) == (504, "the client's deadline has passed")
        assert failed.value.traceback == ""
        assert model.instance.was_cancelled


def test_infer_timeout_reports_code_that_does_not_end() -> None:
    with serve(Slow) as model, pytest.raises(InferenceFailed, match="still runs 2 s after it was cancelled") as failed:
        model.infer({"id": "busy", "inputs": []}, timeout=0.05)
    assert failed.value.status == 504


def test_close_leaves_code_that_does_not_end() -> None:
    released = threading.Event()

    class Hung(MLModel):
        def predict(self, payload):
            released.wait(60)
            return InferenceResponse(model_name="", outputs=[])

        def unload(self):
            return True  # on the thread that is not free

    before = set(threading.enumerate())
    model = serve(Hung, name="hung")
    with pytest.raises(InferenceFailed, match="deadline"):
        model.infer([], timeout=0.05)
    with pytest.raises(UnloadFailed, match="cannot be unloaded while its code runs"):
        model.close()
    [thread] = [thread for thread in set(threading.enumerate()) - before if thread.name == "hung"]
    released.set()
    thread.join(10)
    assert not thread.is_alive()


def test_functions_run_where_the_worker_runs_them() -> None:
    class Places(MLModel):
        def predict(self, payload):
            return InferenceResponse(model_name="", outputs=[StringCodec.encode_output("thread", [_thread()])])

        @custom_handler(rest_path="/loop", rest_method="GET")
        async def loop(self) -> str:
            return _thread()

    def _thread():
        barrier.wait(10)
        return threading.current_thread().name

    barrier = threading.Barrier(2)
    with serve(Places, name="places", parameters={"threads": 2}) as model, ThreadPoolExecutor() as clients:
        answers = list(clients.map(lambda _: model.infer([]), range(2)))
        assert {each.outputs[0].data[0] for each in answers} == {"places-0", "places-1"}
    barrier = threading.Barrier(1)
    with serve(Places, name="places") as model:
        thread = model.infer([]).outputs[0].data[0]
        assert thread == "places" != model.call("GET", "/loop").json()
    with serve(Places, parallel_workers=0) as model:
        thread = model.infer([]).outputs[0].data[0]
        assert thread == model.call("GET", "/loop").json()


def test_stream_yields_responses_until_it_fails() -> None:
    def words(stream):
        return [response.outputs[0].data[0] for response in stream]

    with serve(Words) as model:
        text = " ".join(str(number) for number in range(20))
        assert words(model.infer_stream([body(text, datatype="BYTES")])) == text.split()
        requests = (body(f"{number}a {number}b", datatype="BYTES") for number in range(10))
        assert words(model.infer_stream(requests)) == [f"{number}{letter}" for number in range(10) for letter in "ab"]
        assert words(model.infer_stream([])) == []
        found = []
        with pytest.raises(InferenceFailed) as failed:
            found.extend(model.infer_stream([body("one two fail", datatype="BYTES")]))
        assert words(found) == ["one", "two"]
        assert (failed.value.status, failed.value.message) == (418, "cannot go on")
        with pytest.raises(TypeError, match="a list of requests"):
            model.infer_stream(body("one"))


def test_stream_closed_early_cancels_the_model() -> None:
    with serve(Words) as model:
        Words.closed = False
        stream = model.infer_stream([body("one two three four five six seven", datatype="BYTES")])
        assert next(stream).outputs[0].data[0] == "one"
        stream.close()
        assert Words.closed


def test_stream_of_a_model_without_streams_has_one_response() -> None:
    with serve(Slow) as model:
        assert list(model.infer_stream([])) == []
    with serve(Answer, parameters={"output": {"name": "y", "shape": [1], "datatype": "INT8", "data": [1]}}) as model:
        assert [each.outputs[0].name for each in model.infer_stream([body(1), body(2)])] == ["y"]


def test_call_runs_the_handler_of_the_route() -> None:
    with serve(Greeter) as model:
        response = model.call("GET", "/greet/Ada%20L?times=2")
        assert (response.status, response.json()) == (200, {"greeting": "Hi Hi Ada L"})
        assert response.headers["Content-Type"] == "application/json"
        response = model.call("post", "/notes", json=["a", "b"])
        assert (response.status, response.text, response.headers["x-kind"]) == (201, '{"count":2}', "note")
        assert model.call("HEAD", "/greet/x").status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/files/a/b", 404, "no file a/b"),
        ("GET", "/nowhere", 404, "no such path: /nowhere"),
        ("PUT", "/notes", 405, "/notes does not support PUT"),
        ("GET", "/greet/x?times=many", 422, "times"),
        ("POST", "/status/77", 500, "the handler returned status 77, expected 200 to 999"),
    ],
)
def test_call_errors_are_those_of_clients(method, path, status, message) -> None:
    with serve(Greeter) as model, pytest.raises(InferenceFailed) as failed:
        model.call(method, path)
    assert failed.value.status == status
    assert message in failed.value.message


def test_call_rejects_invalid_paths_of_handlers() -> None:
    class Invalid(MLModel):
        @custom_handler(rest_path="no-slash")
        async def handle(self) -> None: ...

    with pytest.raises(LoadFailed, match="does not begin with `/`"):
        serve(Invalid)


def test_metrics_are_those_of_the_model() -> None:
    class Measured(MLModel):
        async def predict(self, payload):
            mlserver.log(testing_seen=float(payload.id), testing_nan=float("nan"))
            return InferenceResponse(model_name="", outputs=[])

    with serve(Measured, name="one") as one, serve(Measured, name="two") as two:
        assert one.metrics == {}
        one.infer({"id": "1.5", "inputs": []})
        two.infer({"id": "2.5", "inputs": []})
        one.infer({"id": "3.5", "inputs": []})
        assert one.metrics == {"testing_seen": [1.5, 3.5]}
        assert two.metrics == {"testing_seen": [2.5]}
    assert one.metrics == {"testing_seen": [1.5, 3.5]}
    assert mlserver.metrics.registry._sink is None


def test_load_errors_are_reported() -> None:
    before = set(threading.enumerate())
    with pytest.raises(LoadFailed) as failed:
        serve(Trouble, parameters={"extra": {"entry": "load", "trouble": "system_exit"}})
    assert (failed.value.status, failed.value.message) == (500, "builtins.SystemExit: 3")
    with pytest.raises(LoadFailed, match="there is no module `no_such_module`"):
        serve("no_such_module.Model")
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("worker-")]


def test_unload_runs_after_a_failed_load_and_at_the_end() -> None:
    log = []

    class Failing(MLModel):
        async def load(self):
            if self.settings.parameters.version == "bad":
                raise ValueError("boom")
            return True

        def unload(self):
            log.append(self.version)
            if self.version == "ugly":
                raise ValueError("boom")
            return True

    with pytest.raises(LoadFailed, match="boom"):
        serve(Failing, parameters={"version": "bad"})
    with serve(Failing, parameters={"version": "good"}) as model:
        model.close()
    ugly = serve(Failing, parameters={"version": "ugly"})
    with pytest.raises(UnloadFailed, match="boom"):
        ugly.close()
    with pytest.raises(KeyError), serve(Failing, parameters={"version": "ugly"}):
        raise KeyError  # more important than the error of `unload`
    assert log == ["bad", "good", "ugly", "ugly"]


def test_load_result_decides_whether_the_model_is_ready() -> None:
    class Loads(MLModel):
        def load(self):
            return self.settings.parameters.result

    with serve(Loads, parameters={"result": None}) as model:
        assert model.ready
    with serve(Loads, name="loads", parameters={"result": False, "version": "2"}) as model:
        assert not model.ready
        with pytest.raises(InferenceFailed, match="Model loads with version 2 is not ready yet") as failed:
            model.infer([])
        assert failed.value.status == 400


def test_settings_file_is_served_from_its_folder(tmp_path) -> None:
    folder = tmp_path / "churn"
    folder.mkdir()
    (folder / "helpers_of_testing.py").write_text("FACTOR = 3\n")
    (folder / "models_of_testing.py").write_text(
        "import helpers_of_testing\n"
        "from mlserver import MLModel\n"
        "from mlserver.utils import get_model_uri\n"
        "class Churn(MLModel):\n"
        "    async def load(self):\n"
        "        self.factor = helpers_of_testing.FACTOR\n"
        "        self.path = await get_model_uri(self.settings, ['weights.txt'])\n"
        "        return True\n"
    )
    (folder / "weights.txt").write_text("")
    values = {"implementation": "models_of_testing.Churn", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}
    (folder / "model-settings.json").write_text(json.dumps(values))
    for source in (folder, folder / "model-settings.json", str(folder), os.path.relpath(folder)):
        with serve(source) as model:
            assert (model.name, model.instance.factor, model.metadata.inputs[0].name) == ("churn", 3, "x")
            assert model.instance.path == str(folder / "weights.txt")
    with serve(folder, name="other", parameters={"version": "v2"}, platform="test") as model:
        assert (model.name, model.version, model.metadata.platform) == ("other", "v2", "test")
    with serve("models_of_testing.Churn", folder=folder) as model:
        assert (model.name, model.instance.path) == ("Churn", str(folder / "weights.txt"))


def test_forked_children_do_not_use_the_socket() -> None:
    class Forks(MLModel):
        def predict(self, payload):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            return InferenceResponse(model_name="", outputs=[StringCodec.encode_output("pid", [str(os.getpid())])])

    with serve(Forks) as model:
        for _ in range(2):
            assert model.infer([]).outputs[0].data[0] == str(os.getpid())
