"""Methods of models that answer OpenAI's API, and handlers whose replies are sent while they are made."""

import asyncio
import base64
import importlib
import json
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Tuple

import pytest
from mlserver import MLModel
from mlserver._kserve import metrics
from mlserver._kserve.errors import InvalidInput
from mlserver._kserve.model import Model
from mlserver._kserve.protocol.rest.openai import (
    ChatPrompt,
    OpenAIChatAdapterModel,
    OpenAIEncoderModel,
    OpenAIProxyModel,
    openai_proxy_model,
)
from mlserver._kserve.protocol.rest.openai.errors import OpenAIError, create_error_response
from mlserver._kserve.protocol.rest.openai.types import (
    ChatCompletionChoice,
    ChatCompletionChunk,
    ChatCompletionRequest,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionRequest,
    Embedding,
    EmbeddingRequest,
    ErrorResponse,
    Rerank,
    RerankRequest,
    UsageInfo,
)
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.testing import InferenceFailed, LoadFailed, serve
from worker import CALL, CANCEL, CHUNK, CREDIT, DONE, ERROR, LOAD, ROOT, YIELDED, Worker, frame

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "m", "prompt": "hi"}
TEXTS = {"model": "m", "input": ["a", "b"]}
RANK = {"model": "m", "query": "q", "documents": ["a", {"text": "b"}, "c"]}


def post(model: Any, path: str, body: Any, **options: Any) -> Any:
    headers = {"x-request-id": "r1", **options.pop("headers", {})}
    return model.call("POST", f"/openai/v1/{path}", json=body, headers=headers, **options)


def answer(cls: type, path: str, body: Any) -> Dict[str, Any]:
    with serve(cls, name="m") as model:
        reply = post(model, path, body)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    return json.loads(reply.body)


def events(cls: type, path: str, body: Any) -> List[Any]:
    """Returns the events of a stream; text that is no JSON stays text."""
    with serve(cls, name="m") as model:
        reply = post(model, path, {**body, "stream": True})
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    parts = reply.body.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts), reply.body
    return [json.loads(part[6:]) if part[6:].startswith("{") else part[6:] for part in parts]


class Plain(MLModel):
    """Plain methods with dictionaries."""

    def create_chat_completion(self, request, raw_request=None, context=None):
        assert raw_request is None
        assert context["headers"]["x-request-id"] == "r1"
        context["response"].headers["X-Made-By"] = "plain"
        if request.get("stream"):
            return ({"choices": [{"delta": {"content": text}}]} for text in ("a", "b"))
        content = request["messages"][0]["content"]
        return {"choices": [{"message": {"role": "assistant", "content": content}}], "usage": {"prompt_tokens": 3}}

    def create_embedding(self, request):
        return {"data": [{"embedding": [0.1, 2.0]}, [float("nan"), 1.0]]}

    def create_rerank(self, request):
        return {"results": [0.5, 0.9, {"relevance_score": 0.5}]}


class Coroutines(MLModel):
    async def create_completion(self, request, **others):
        assert set(others) == {"raw_request", "context"}
        if request.get("stream"):
            return self.chunks(request)
        return {"id": "own", "created": 5, "choices": [{"text": "t", "index": 7}]}

    async def chunks(self, request):
        kind = request["prompt"]
        if kind == "fails at once":
            raise MLServerError("no", 418)
        if kind == "refuses at once":
            raise OpenAIError(create_error_response("too long", status_code=422))
        yield {"choices": [{"text": "t"}]}
        if kind == "fails later":
            raise ValueError("later")
        if kind == "refuses later":
            raise OpenAIError(create_error_response("later", status_code=422))
        await asyncio.sleep(0)
        yield {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}


class AsyncGenerator(MLModel):
    async def create_completion(self, request):
        yield "data: {\"a\": 1}\r\n\r\ndata: [DO"
        yield "NE]\r\n\r\n"


class Text(MLModel):
    def create_completion(self, request):
        yield f"data: {json.dumps({'choices': [{'text': request['prompt']}]})}"


def test_whole_answers_are_completed():
    found = answer(Plain, "chat/completions", CHAT)
    created = found.pop("created")
    assert abs(created - time.time()) < 60
    message = {"role": "assistant", "content": "hi"}
    assert found == {
        "id": "chatcmpl-r1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message}],
        "usage": {"prompt_tokens": 3},
    }
    assert answer(Coroutines, "completions", PROMPT) == {
        "id": "own",
        "object": "text_completion",
        "created": 5,
        "model": "m",
        "choices": [{"index": 7, "text": "t"}],
    }


def test_headers_of_the_context_are_those_of_the_answer():
    with serve(Plain, name="m") as model:
        assert post(model, "chat/completions", CHAT).headers["X-Made-By"] == "plain"


def test_streams_are_completed_and_ended():
    first, second, end = events(Plain, "chat/completions", CHAT)
    assert (first["id"], first["object"], first["model"]) == ("chatcmpl-r1", "chat.completion.chunk", "m")
    assert first["created"] == second["created"]
    assert [chunk["choices"] for chunk in (first, second)] == [[{"index": 0, "delta": {"content": text}}] for text in "ab"]
    assert end == "[DONE]"
    chunk, usage, end = events(Coroutines, "completions", PROMPT)
    assert (chunk["object"], chunk["choices"]) == ("text_completion", [{"index": 0, "text": "t"}])
    assert (usage["usage"], end) == ({"prompt_tokens": 2, "completion_tokens": 1}, "[DONE]")


def test_text_is_passed_on_and_ended_once():
    with serve(AsyncGenerator, name="m") as model:
        reply = post(model, "completions", {**PROMPT, "stream": True})
    assert reply.body == b'data: {"a": 1}\r\n\r\ndata: [DONE]\r\n\r\n'
    # The end is not recognized inside a content, and an event that its text has not ended is ended.
    chunk, end = events(Text, "completions", {**PROMPT, "prompt": "\ndata: [DONE]\n"})
    assert (chunk["choices"][0]["text"], end) == ("\ndata: [DONE]\n", "[DONE]")


def test_whole_answer_to_a_streamed_request_is_one_chunk():
    class Whole(MLModel):
        def create_chat_completion(self, request):
            return {"choices": [{"message": {"role": "assistant", "content": "c"}, "finish_reason": "stop"}]}

    chunk, end = events(Whole, "chat/completions", CHAT)
    assert chunk["object"] == "chat.completion.chunk"
    delta = {"role": "assistant", "content": "c"}
    assert (chunk["choices"], end) == ([{"index": 0, "delta": delta, "finish_reason": "stop"}], "[DONE]")


def test_stream_without_being_asked_for_is_an_error():
    with serve(AsyncGenerator, name="m") as model, pytest.raises(InferenceFailed, match="returned a stream") as error:
        post(model, "completions", PROMPT)
    assert error.value.status == 500


@pytest.mark.parametrize(
    ("prompt", "status", "message"), [("fails at once", 418, "no"), ("refuses at once", 422, "too long")]
)
def test_errors_before_the_first_chunk_have_their_status(prompt: str, status: int, message: str):
    with serve(Coroutines, name="m") as model:
        try:
            reply = post(model, "completions", {**PROMPT, "prompt": prompt, "stream": True})
            found = (reply.status, json.loads(reply.body)["error"]["message"])
        except InferenceFailed as error:
            found = (error.status, error.message)
    assert found == (status, message)


def test_later_errors_end_the_stream():
    _chunk, error = events(Coroutines, "completions", {**PROMPT, "prompt": "refuses later"})
    assert error == {"error": {"message": "later", "type": "BadRequestError", "param": "", "code": "422"}}
    # The server writes the event for an exception that has no answer.
    with serve(Coroutines, name="m") as model, pytest.raises(InferenceFailed, match="ValueError: later"):
        post(model, "completions", {**PROMPT, "prompt": "fails later", "stream": True})


def test_embeddings_are_numbers_or_base64():
    found = answer(Plain, "embeddings", TEXTS)
    assert [item["embedding"] for item in found["data"]] == [[0.1, 2.0], [None, 1.0]]
    assert found["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert (found["object"], found["model"], found["data"][1]["index"]) == ("list", "m", 1)
    found = answer(Plain, "embeddings", {**TEXTS, "encoding_format": "base64"})
    first = base64.b64decode(found["data"][0]["embedding"])
    assert first == struct.pack("<2f", 0.1, 2.0)


def test_documents_are_sorted_cut_and_returned():
    found = answer(Plain, "rerank", RANK)
    assert [result["index"] for result in found["results"]] == [1, 0, 2]
    assert found["results"][0] == {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}
    found = answer(Plain, "rerank", {**RANK, "top_n": 1, "return_documents": False})
    assert found["results"] == [{"index": 1, "relevance_score": 0.9}]
    assert (found["id"], found["usage"]) == ("r1", {"total_tokens": 0})
    assert len(answer(Plain, "rerank", {**RANK, "top_n": 0})["results"]) == 3


def test_what_an_instance_has_under_the_names_is_its_own():
    class Own(MLModel):
        create_embedding = 5

        async def load(self):
            self.create_rerank = "mine"
            self.create_completion = lambda request: {}
            return True

    with serve(Own, name="m") as model:
        for path in ("embeddings", "rerank", "completions", "chat/completions"):
            with pytest.raises(InferenceFailed, match="no such path"):
                post(model, path, {})


@pytest.mark.parametrize("value", [None, 5, "text", [1]])
def test_answers_of_another_type_are_errors(value: Any):
    class Odd(MLModel):
        def create_completion(self, request):
            return value

    with serve(Odd, name="m") as model, pytest.raises(InferenceFailed, match="expected a dict") as error:
        post(model, "completions", PROMPT)
    assert error.value.status == 500


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}", b"[]"])
def test_bodies_that_cannot_be_read_are_refused(body: bytes):
    with serve(Plain, name="m") as model, pytest.raises(InferenceFailed) as error:
        model.call("POST", "/openai/v1/embeddings", body=body)
    # Python before 3.11 reads integers of any length.
    assert error.value.status == 400 or sys.version_info < (3, 11)


# Classes of KServe


class Adapter(OpenAIChatAdapterModel):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def apply_chat_template(self, request):
        return ChatPrompt(prompt=" ".join(message["content"] for message in request.messages))

    async def create_completion(self, request, raw_request=None, context=None):
        assert isinstance(request, CompletionRequest)
        assert request.suffix is None
        if request.prompt == "refuse":
            raise InvalidInput("refused")
        if request.prompt == "error":
            return create_error_response("not now", status_code=503)
        if request.stream:
            return self.chunks(request)
        choice = CompletionChoice(index=0, text=request.prompt, finish_reason="stop", logprobs=None)
        return Completion(id="c", object="text_completion", created=1, model=request.model, choices=[choice])

    async def chunks(self, request):
        for text in request.prompt:
            choices = [{"index": 0, "text": text, "finish_reason": None}]
            chunk = CompletionChunk(id="c", object="text_completion", created=1, model="m", choices=choices)
            yield f"data: {chunk.model_dump_json()}\n\n"
        yield "data: [DONE]\n\n"


class Encoder(OpenAIEncoderModel):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def create_embedding(self, request, raw_request=None, context=None):
        assert request.dimensions is None
        assert request.model_copy(update={"user": "u"}).user == "u"
        return Embedding(object="list", data=[{"embedding": [1.0], "index": 0}], model=request.model, usage=None)

    async def create_rerank(self, request, raw_request=None, context=None):
        return Rerank(id="r", model=request.model, results=[{"index": 0, "relevance_score": 0.25}])


def test_chat_adapter_answers_chats_with_completions():
    found = answer(Adapter, "chat/completions", CHAT)
    message = {"role": "assistant", "content": "hi"}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
    assert found == {"id": "c", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    first, second, end = events(Adapter, "chat/completions", CHAT)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "h"}
    assert (second["choices"][0]["delta"], end) == ({"content": "i"}, "[DONE]")
    assert second["object"] == "chat.completion.chunk"
    assert answer(Adapter, "completions", PROMPT)["choices"][0]["text"] == "hi"


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"n": 2}, 400, "n != 1 is not supported"),
        ({"messages": [{"content": "refuse"}]}, 400, "refused"),
        ({"messages": [{"content": "error"}]}, 503, "not now"),
    ],
)
def test_chat_adapter_refuses(change: Dict[str, Any], status: int, message: str):
    with serve(Adapter, name="m") as model:
        try:
            reply = post(model, "chat/completions", {**CHAT, **change})
            found: Tuple[int, str] = (reply.status, json.loads(reply.body)["error"]["message"])
        except InferenceFailed as error:
            found = (error.status, error.message)
    assert found == (status, message)


def test_encoder_answers():
    found = answer(Encoder, "embeddings", {**TEXTS, "encoding_format": "base64"})
    assert found["data"] == [{"object": "embedding", "index": 0, "embedding": base64.b64encode(struct.pack("<f", 1)).decode()}]
    assert found["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert answer(Encoder, "rerank", RANK)["results"][0]["document"] == {"text": "a"}


def test_models_of_the_api_refuse_other_requests():
    with serve(Adapter, name="m") as model:
        with pytest.raises(InferenceFailed, match="answers only requests of OpenAI's API"):
            model.infer({"inputs": []})
        reply = model.call("POST", "/v1/models/m:predict", json={"instances": []})
        assert reply.status == 400


MISSING = {"message": "no model x", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
SLOW = {"message": "slow down", "type": "rate_limit_error", "param": "", "code": "429"}
#: Status and body of the other server, and the error that is passed on.
UPSTREAM_ERRORS = {
    "missing": (404, {"error": MISSING}, MISSING),
    "null": (400, {"error": {**MISSING, "code": None}}, {**MISSING, "code": None}),
    "slow": (429, {"error": SLOW}, SLOW),
    "number": (400, {"error": {**MISSING, "code": 400, "inner": [1]}}, {**MISSING, "code": "400", "inner": [1]}),
    "bare": (422, {"error": {"message": "m"}}, {"message": "m", "type": None, "param": None, "code": None}),
    "text": (404, {"error": "no such"}, {"message": "no such", "type": "upstream_error", "param": None, "code": "404"}),
    "page": (502, b"<html>", {"message": "<html>", "type": "upstream_error", "param": None, "code": "502"}),
}


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.headers["authorization"] is None
        assert self.headers["x-request-id"] == "r1"
        if body.get("prompt") in UPSTREAM_ERRORS:
            status, content, _expected = UPSTREAM_ERRORS[body["prompt"]]
            self.reply(status, content if isinstance(content, bytes) else json.dumps(content).encode())
        elif body.get("prompt") == "wait":
            time.sleep(1)
        elif body.get("stream"):
            chunk = json.dumps({"choices": [{"text": body["prompt"]}]})
            self.reply(200, f"data: {chunk}\n\ndata: [DONE]\n\n".encode())
        else:
            self.reply(200, json.dumps({"id": "u", "choices": [{"text": body["prompt"], "index": 0}]}).encode())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Proxy(OpenAIProxyModel):
    url = ""

    def __init__(self, name: str) -> None:
        super().__init__(name, Proxy.url)
        self.ready = True

    def preprocess_completion_request(self, request, raw_request=None):
        request.prompt = request.prompt.upper() if request.prompt == "hi" else request.prompt

    def postprocess_completion(self, completion, request, raw_request=None):
        completion.choices[0].text += "!"

    def postprocess_completion_chunk(self, completion, request, raw_request=None):
        completion.choices[0].text += "?"
        return completion


def test_proxy_passes_requests_on(monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Proxy.url = f"http://127.0.0.1:{server.server_port}"
        found = answer(Proxy, "completions", PROMPT)
        assert (found["id"], found["choices"][0]["text"], found["model"]) == ("u", "HI!", "m")
        chunk, end = events(Proxy, "completions", PROMPT)
        assert (chunk["choices"][0]["text"], end) == ("HI?", "[DONE]")
        with serve(Proxy, name="m") as model:
            for prompt, (status, _content, expected) in UPSTREAM_ERRORS.items():
                for stream in (False, True):
                    body = {**PROMPT, "prompt": prompt, "stream": stream}
                    reply = post(model, "completions", body, headers={"authorization": "Bearer k"})
                    assert (reply.status, json.loads(reply.body)) == (status, {"error": expected}), prompt
            assert model.ready
            monkeypatch.setattr(openai_proxy_model, "_READ_TIMEOUT", 0.2)
            reply = post(model, "completions", {**PROMPT, "prompt": "wait"})
            error = json.loads(reply.body)["error"]
            assert (reply.status, error["type"], error["code"]) == (504, "GatewayTimeout", "504")
            assert error["message"].startswith("Timed out when communicating with upstream: ")
        server.shutdown()
        server.server_close()
        with serve(Proxy, name="m") as model:
            assert not model.ready
            reply = post(model, "completions", PROMPT)
            error = json.loads(reply.body)["error"]
            assert (reply.status, error["type"], error["code"]) == (503, "ServiceUnavailableError", "503")
            assert error["message"].startswith("Failed to communicate with upstream: ")


class StatusError(Exception):
    """Has its response, as that of httpx has."""

    def __init__(self) -> None:
        super().__init__()
        self.response = type("Response", (), {"status_code": 404})


def test_errors_keep_their_words_and_the_status_of_upstream():
    class Fails(OpenAIProxyModel):
        def __init__(self, name):
            super().__init__(name, "http://127.0.0.1:9", health_endpoint=None)

        async def create_completion(self, request, raw_request=None, context=None):
            if request.prompt == "words":
                raise OpenAIError("plain words")
            if request.prompt == "own":
                raise type("TooLong", (OpenAIError,), {})("own words")
            try:
                raise StatusError
            except StatusError:
                # KServe's proxy does the same.
                raise OpenAIError(ErrorResponse(error=MISSING))  # noqa: B904

    with serve(Fails, name="m") as model:
        for prompt, status, expected in (
            ("words", 500, {"message": "plain words", "type": "OpenAIError", "param": "", "code": "500"}),
            ("own", 500, {"message": "own words", "type": "TooLong", "param": "", "code": "500"}),
            ("upstream", 404, MISSING),
        ):
            reply = post(model, "completions", {**PROMPT, "prompt": prompt})
            assert (reply.status, json.loads(reply.body)) == (status, {"error": expected})
    assert str(OpenAIError("plain words")) == OpenAIError("plain words").response == "plain words"


@pytest.mark.parametrize("has_vllm", [False, True])
def test_real_package_without_vllm_gets_these_classes(tmp_path, has_vllm: bool):
    real = tmp_path / "kserve" / "protocol" / "rest" / "openai"
    real.mkdir(parents=True)
    for folder in (real, *real.parents[:3]):
        (folder / "__init__.py").write_text("")
    (real / "__init__.py").write_text("import vllm\nreal = True\n")
    if has_vllm:
        (tmp_path / "vllm.py").write_text("")
    code = """
import sys
from mlserver import _kserve_imports
_kserve_imports.install()
import kserve
print("real" if "kserve" in kserve.__file__ and "mlserver" not in kserve.__file__ else "ours")
from kserve.protocol.rest import openai
print(hasattr(openai, "real"), hasattr(openai, "OpenAIEncoderModel"))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'python'}"}, capture_output=True, text=True
    )
    assert run.stdout.split() == ["real", str(has_vllm), str(not has_vllm)], run.stderr


REAL = {
    "openai_model.py": """
from mlserver._kserve.model import BaseKServeModel

class OpenAIModel(BaseKServeModel):
    def __init__(self, name):
        super().__init__(name)
        self.ready = True

class OpenAIGenerativeModel(OpenAIModel):
    pass

class OpenAIEncoderModel(OpenAIModel):
    pass
""",
    "types.py": """
from typing import List, Optional, Union
from pydantic import BaseModel, ConfigDict, model_validator

class CompletionRequest(BaseModel):
    model_config = ConfigDict(extra="allow")
    model: str
    prompt: Optional[str] = None
    temperature: Optional[float] = None
    n: int = 1

    @model_validator(mode="before")
    @classmethod
    def check(cls, fields):
        if fields.get("prompt") == "":
            raise ValueError("the prompt is empty")
        if fields.get("prompt") == "bug":
            raise TypeError("a bug")
        return fields

class ChatCompletionRequest(BaseModel):
    model: str
    messages: List[dict]

class EmbeddingCompletionRequest(BaseModel):
    model: Optional[str] = None
    input: Union[List[str], str]
    dimensions: Optional[int] = None

class EmbeddingChatRequest(BaseModel):
    model: Optional[str] = None
    messages: List[dict]

EmbeddingRequest = Union[EmbeddingCompletionRequest, EmbeddingChatRequest]

class RerankRequest(BaseModel):
    model: Optional[str] = None
    query: str
    documents: List[str]
    top_n: int = 0
""",
}


@pytest.fixture
def real(tmp_path, monkeypatch):
    """Returns the module with KServe's base classes in the shape that they have with vLLM: requests are types of pydantic."""
    pytest.importorskip("pydantic", minversion="2")
    folder = tmp_path / "shaped" / "protocol" / "rest" / "openai"
    folder.mkdir(parents=True)
    for parent in (folder, *folder.parents[:3]):
        (parent / "__init__.py").write_text("")
    for name, text in REAL.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("shaped.protocol.rest.openai.openai_model")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shaped"]:
        del sys.modules[name]


def test_types_of_vllm_may_be_unions(real):
    class Encoder(real.OpenAIEncoderModel):
        async def create_embedding(self, request, raw_request=None, context=None):
            return {"data": [[float(len(text))] for text in request.input], "model": type(request).__name__}

        async def create_rerank(self, request, raw_request=None, context=None):
            return {"results": [len(document) for document in request.documents], "model": str(request.top_n)}

    found = answer(Encoder, "embeddings", TEXTS)
    assert [item["embedding"] for item in found["data"]] == [[1.0], [1.0]]
    assert found["model"] == "EmbeddingCompletionRequest"
    assert answer(Encoder, "rerank", {**RANK, "documents": ["a"]})["model"] == "0"


def test_load_of_a_ready_model_is_called_unless_its_constructor_has(real):
    class Loaded(real.OpenAIGenerativeModel):
        loads = 0

        def load(self):
            self.loads += 1

        def create_completion(self, request, raw_request=None, context=None):
            return {"choices": [], "loads": self.loads}

    class LoadsItself(Loaded):
        def __init__(self, name):
            super().__init__(name)
            self.load()

    class Coroutine(Loaded):
        async def load(self):
            self.loads = 5
            return True

    class Both(Model, real.OpenAIEncoderModel):
        def load(self):
            self.text = "loaded"

        async def predict(self, payload, headers=None):
            return {"text": self.text}

        async def create_embedding(self, request, raw_request=None, context=None):
            return {"data": [], "text": self.text}

    assert answer(Loaded, "completions", PROMPT)["loads"] == 1
    assert answer(LoadsItself, "completions", PROMPT)["loads"] == 1
    assert answer(Coroutine, "completions", PROMPT)["loads"] == 5
    assert answer(Both, "embeddings", TEXTS)["text"] == "loaded"
    with serve(Both, name="m") as model:
        assert json.loads(model.call("POST", "/v1/models/m:predict", json={}).body) == {"text": "loaded"}


def test_load_of_a_ready_model_may_fail(real):
    class Fails(real.OpenAIGenerativeModel):
        def load(self):
            raise ValueError("no weights")

    class Refuses(real.OpenAIGenerativeModel):
        def load(self):
            return False

        create_completion = create_chat_completion = None

    with pytest.raises(LoadFailed, match="no weights"), serve(Fails, name="m"):
        pass
    with serve(Refuses, name="m") as model:
        assert not model.ready


@pytest.mark.parametrize("is_healthy", [True, False])
def test_healthy_may_return_the_coroutine_of_its_base_class(real, is_healthy: bool):
    class Proxy(real.OpenAIGenerativeModel):
        async def own(self):
            return is_healthy

        async def healthy(self):
            return self.own()  # as KServe's proxy does without a health endpoint

    with serve(Proxy, name="m") as model:
        assert model.call("GET", "/v1/models/m").status == (200 if is_healthy else 503)


class MappingIterator:
    """Iterates as `AsyncMappingIterator` of KServe does: without `aclose`, and `close` is an attribute."""

    def __init__(self, close):
        self.close = close
        self.items = iter("ab")

    def __aiter__(self):
        return self

    async def __anext__(self):
        for item in self.items:
            return {"choices": [{"text": item}]}
        raise StopAsyncIteration


@pytest.mark.parametrize("kind", ["none", "plain", "coroutine"])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.filterwarnings("error")
def test_iterators_close_as_they_do(kind: str, streams: bool):
    closed = []

    def plain():
        closed.append(1)

    async def coroutine():
        await asyncio.sleep(0)
        closed.append(1)

    class Generative(MLModel):
        async def create_completion(self, request):
            return MappingIterator({"none": None, "plain": plain, "coroutine": coroutine}[kind])

    if streams:
        first, second, end = events(Generative, "completions", PROMPT)
        assert (first["choices"][0]["text"], second["choices"][0]["text"], end) == ("a", "b", "[DONE]")
    else:
        with serve(Generative, name="m") as model, pytest.raises(InferenceFailed, match="returned a stream"):
            post(model, "completions", PROMPT)
    assert closed == ([] if kind == "none" else [1])


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("completions", {**PROMPT, "temperature": "hot"}, "temperature", "should be a valid number"),
        ("completions", {**PROMPT, "temperature": "hot", "n": "many"}, "temperature", "should be a valid number"),
        ("completions", {**PROMPT, "prompt": ""}, None, "the prompt is empty"),
        ("chat/completions", {**CHAT, "messages": ["hi"]}, "messages", "`messages.0`: "),
        ("embeddings", {**TEXTS, "dimensions": "two"}, "dimensions", "should be a valid integer"),
        ("embeddings", {"model": "m"}, "input", "`input`: Field required"),
        ("rerank", RANK, "documents", "`documents.1`: "),
    ],
)
def test_requests_that_pydantic_refuses_are_400(real, path: str, body: Any, param: Any, message: str):
    class All(real.OpenAIEncoderModel, real.OpenAIGenerativeModel):
        async def create_completion(self, request, raw_request=None, context=None):
            raise AssertionError("not called")

        create_chat_completion = create_embedding = create_rerank = create_completion

    with serve(All, name="m") as model:
        reply = post(model, path, body)
    error = json.loads(reply.body)["error"]
    assert (reply.status, error["type"], error["param"], error["code"]) == (400, "invalid_request_error", param, None)
    assert message in error["message"]
    assert "\n" not in error["message"]
    assert "pydantic" not in error["message"]


def test_defects_of_the_types_are_not_blamed_on_the_request(real):
    class Generative(real.OpenAIGenerativeModel):
        async def create_completion(self, request, raw_request=None, context=None):
            raise AssertionError("not called")

    with serve(Generative, name="m") as model, pytest.raises(InferenceFailed, match="TypeError : a bug") as error:
        post(model, "completions", {**PROMPT, "prompt": "bug"})
    assert error.value.status == 500


#: What vLLM 0.24 gives requests without the fields, beside `None`. Those of `request_id` differ.
DEFAULTS = {
    ChatCompletionRequest: {
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "length_penalty": 1.0,
        "logprobs": False,
        "top_logprobs": 0,
        "n": 1,
        "stop": [],
        "stream": False,
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "echo": False,
        "include_reasoning": True,
        "use_beam_search": False,
        "stop_token_ids": [],
        "ignore_eos": False,
        "bad_words": [],
        "include_stop_str_in_output": False,
        "min_tokens": 0,
        "skip_special_tokens": True,
        "priority": 0,
        "spaces_between_special_tokens": True,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "add_special_tokens": False,
    },
    CompletionRequest: {
        "echo": False,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "length_penalty": 1.0,
        "max_tokens": 16,
        "n": 1,
        "stop": [],
        "stream": False,
        "use_beam_search": False,
        "stop_token_ids": [],
        "ignore_eos": False,
        "include_stop_str_in_output": False,
        "min_tokens": 0,
        "skip_special_tokens": True,
        "priority": 0,
        "spaces_between_special_tokens": True,
        "add_special_tokens": True,
    },
    EmbeddingRequest: {
        "add_special_tokens": True,
        "encoding_format": "float",
        "embed_dtype": "float32",
        "endianness": "native",
        "priority": 0,
    },
    RerankRequest: {"priority": 0, "max_tokens_per_query": 0, "max_tokens_per_doc": 0, "top_n": 0},
}
#: Fields that are `None` in requests without them.
ABSENT = {
    ChatCompletionRequest: (
        "allowed_token_ids cache_salt chat_template chat_template_kwargs documents kv_transfer_params logit_bias"
        " max_completion_tokens max_tokens media_io_kwargs messages min_p mm_processor_kwargs model prompt_logprobs"
        " reasoning_effort repetition_detection repetition_penalty response_format return_prompt_text return_token_ids"
        " return_tokens_as_token_ids seed stream_options structured_outputs temperature thinking_token_budget tools top_k"
        " top_p truncate_prompt_tokens truncation_side user vllm_xargs"
    ),
    CompletionRequest: (
        "allowed_token_ids cache_salt kv_transfer_params logit_bias logprobs min_p model prompt prompt_embeds"
        " prompt_logprobs repetition_detection repetition_penalty response_format return_token_ids"
        " return_tokens_as_token_ids seed stream_options structured_outputs suffix temperature thinking_token_budget top_k"
        " top_p truncate_prompt_tokens truncation_side user vllm_xargs"
    ),
    EmbeddingRequest: (
        "cache_salt dimensions input mm_processor_kwargs model truncate_prompt_tokens truncation_side use_activation user"
    ),
    RerankRequest: (
        "cache_salt chat_template_kwargs documents instruction mm_processor_kwargs model query truncate_prompt_tokens"
        " truncation_side use_activation user"
    ),
}


@pytest.mark.parametrize("request_type", list(DEFAULTS))
def test_requests_have_the_fields_of_vllm(request_type: Any):
    request = request_type(own=None)
    for name in ABSENT[request_type].split():
        assert getattr(request, name) is None, name
    for name, value in DEFAULTS[request_type].items():
        assert (getattr(request, name), type(getattr(request, name))) == (value, type(value)), name
    assert len(request.request_id) == 32
    assert request.request_id == request.request_id != request_type().request_id
    dumped = request.model_dump()
    assert {"own": None, "request_id": request.request_id, **DEFAULTS[request_type]}.items() <= dumped.items()
    assert set(ABSENT[request_type].split()) <= set(dumped)
    assert request.model_dump(exclude_unset=True) == {"own": None}
    assert json.loads(request.model_dump_json(exclude_unset=True, exclude_none=True)) == {}


def test_defaults_may_be_changed():
    request = CompletionRequest(model="m")
    request.stop.append("x")
    request.user = "u"
    assert (request.stop, CompletionRequest().stop) == (["x"], [])
    assert request.model_dump(exclude_unset=True) == {"model": "m", "user": "u"}
    assert request.model_dump(include={"model", "n"}) == {"model": "m", "n": 1}
    assert "n" not in request.model_dump(exclude={"n"})
    copy = request.model_copy(update={"n": 2})
    assert (copy.n, copy.stop, copy.request_id) == (2, ["x"], request.request_id)
    assert ChatCompletionRequest(tools=[{}]).tool_choice == "auto"


def test_answers_have_the_defaults_of_vllm():
    usage = UsageInfo(prompt_tokens=3)
    assert usage.completion_tokens == 0
    assert usage.model_dump() == {"prompt_tokens": 3, "total_tokens": 0, "completion_tokens": 0}
    choice = ChatCompletionChoice(index=0, message={"role": "assistant"})
    assert (choice.message.tool_calls, choice.finish_reason, choice.token_ids) == ([], "stop", None)
    assert choice.model_dump() == {"index": 0, "message": {"role": "assistant"}, "finish_reason": "stop"}
    chunk = json.loads(ChatCompletionChunk(model="m", choices=[{"index": 0, "delta": {"content": "a"}}]).model_dump_json())
    assert chunk.pop("id").startswith("chatcmpl-")
    assert abs(chunk.pop("created") - time.time()) < 60
    choices = [{"index": 0, "delta": {"content": "a"}}]
    assert chunk == {"object": "chat.completion.chunk", "model": "m", "choices": choices}


def test_proxy_sends_what_the_client_has_sent():
    sent = []

    class Records(Upstream):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.reply(200, b'{"choices": [{"text": "t", "index": 0}]}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Records) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Proxy.url = f"http://127.0.0.1:{server.server_port}"
        body = {**PROMPT, "temperature": 0.5, "top_k": 3, "own": {"a": None}, "seed": None}
        answer(Proxy, "completions", body)
        server.shutdown()
    # As KServe's proxy does, without fields that are null.
    assert sent == [{"model": "m", "prompt": "HI", "temperature": 0.5, "top_k": 3, "own": {"a": None}}]


def test_statistics_of_language_models_can_be_imported():
    stats = metrics.LLMStats(num_prompt_tokens=2)
    stats.num_generation_tokens += 1
    assert (stats.num_prompt_tokens, stats.num_generation_tokens) == (2, 1)


def test_records_have_their_fields():
    request = CompletionRequest(model="m", model_dump="x", custom=1)
    assert (request.custom, request.seed, request.model_dump()["model_dump"]) == (1, None, "x")
    with pytest.raises(AttributeError):
        _ = request.unknown
    assert ErrorResponse(error={"message": "m"}).error.code is None
    assert json.loads(request.model_dump_json()) == request.model_dump()


# V1, and replies in pieces


class V1Stream(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def predict(self, payload, headers=None):
        return self.items(payload)

    async def items(self, payload):
        if payload.get("fail") == "first":
            raise InvalidInput("not this")
        yield "data: a\n\n"
        yield {"b": 1}
        if payload.get("fail"):
            raise ValueError("later")


def test_v1_sends_the_items_of_a_stream():
    with serve(V1Stream, name="m") as model:
        reply = model.call("POST", "/v1/models/m:predict", json={})
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        assert reply.body == b'data: a\n\ndata: {"b":1}\n\n'
        reply = model.call("POST", "/v1/models/m:predict", json={"fail": "first"})
        assert (reply.status, json.loads(reply.body)) == (400, {"error": "not this"})
        with pytest.raises(InferenceFailed, match="later"):
            model.call("POST", "/v1/models/m:predict", json={"fail": "later"})


class Pieces(MLModel):
    """A handler that says how far it is."""

    @custom_handler(rest_path="/pieces", rest_method="post")
    async def pieces(self):
        return self.make()

    async def make(self):
        try:
            for index in range(100):
                print(f"made {index}", flush=True)
                yield bytes([index]) * (100_000 if index == 0 else 1)
        finally:
            print("closed", flush=True)

    @custom_handler(rest_path="/waits", rest_method="post")
    async def waits(self):
        return self.wait()

    async def wait(self):
        yield "first"
        try:
            await asyncio.sleep(60)
        finally:
            print("closed", flush=True)


def load(worker: Worker) -> None:
    worker.send(frame(LOAD, 0x100, {"model": 1, "settings": {"name": "m", "implementation": "test_openai.Pieces"}}))
    loaded = worker.receive()
    assert loaded.kind != ERROR, loaded.head


def call_frame(path: str, credit: int) -> bytes:
    head = {"model": 1, "handler": path, "method": "POST", "path": f"/{path}", "path_params": {}, "query": "", "headers": []}
    return frame(CALL, 0x201, {**head, "credit": credit})


def test_pieces_are_made_only_when_they_may_be_sent():
    with Worker() as worker:
        load(worker)
        worker.send(call_frame("pieces", 2))
        sizes = [len(worker.receive(yields=True).tail), len(worker.receive().tail)]
        assert sizes == [65536, 100_000 - 65536], "a long piece is sent in several frames"
        worker.server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            worker.receive()
        worker.server.settimeout(30)
        worker.send(frame(CREDIT, 0x201, {"count": 3}))
        assert [worker.receive()[:4] for _ in range(3)] == [(CHUNK, 0x201, {}, bytes([index])) for index in (1, 2, 3)]
        worker.send(frame(CREDIT, 0x201, {"count": 1000}))
        kinds = [worker.receive().kind for _ in range(97)]
        assert kinds == [CHUNK] * 96 + [DONE]


class PlainStream(MLModel):
    def create_completion(self, request):
        for word in request["prompt"].split():
            yield {"choices": [{"text": word}]}


def test_stream_of_a_plain_function_leaves_its_thread_to_other_calls():
    def call(id: int) -> bytes:
        head = {"model": 1, "handler": "openai:completions", "method": "POST", "path": "", "path_params": {}, "query": ""}
        body = json.dumps({"model": "m", "prompt": "a b", "stream": True}).encode()
        return frame(CALL, id, {**head, "headers": [], "credit": 1}, body)

    with Worker() as worker:
        settings = {"name": "m", "implementation": "test_openai.PlainStream"}
        worker.send(frame(LOAD, 0x100, {"model": 1, "settings": settings}))
        assert worker.receive().kind != ERROR
        for id in (0x201, 0x302):
            worker.send(call(id))
            assert worker.receive(yields=True)[:2] == (YIELDED, id)
            assert worker.receive()[:2] == (CHUNK, id), "the first one waits for credit"
        for id in (0x201, 0x302):
            worker.send(frame(CREDIT, id, {"count": 3}))
            assert [worker.receive().kind for _ in range(3)] == [CHUNK, CHUNK, DONE]


def test_cancelled_stream_is_closed_at_once():
    with Worker() as worker:
        load(worker)
        worker.send(call_frame("waits", 8))
        assert worker.receive(yields=True).tail == b"first"
        start = time.monotonic()
        worker.send(frame(CANCEL, 0x201))
        final = worker.receive()
        assert (final.kind, final.head["kind"]) == (ERROR, "cancelled")
        assert time.monotonic() - start < 0.1


def test_whole_replies_of_applications_stay_whole():
    pytest.importorskip("starlette")
    from starlette.responses import JSONResponse, StreamingResponse

    class Responses(MLModel):
        @custom_handler(rest_path="/whole", rest_method="post")
        def whole(self):
            return JSONResponse({"a": 1})

        @custom_handler(rest_path="/parts", rest_method="post")
        def parts(self):
            async def make():
                yield b"a"
                yield b"b"

            return StreamingResponse(make(), media_type="text/plain")

    with serve(Responses, name="m") as model:
        whole = model.call("POST", "/whole")
        assert (whole.status, whole.body, whole.headers["content-length"]) == (200, b'{"a":1}', "7")
        assert model.call("POST", "/parts").body == b"ab"
