"""Clients of OpenAI's API: `openai` itself, LangChain, LlamaIndex and LiteLLM, unmodified."""

import asyncio
import base64
import json
import os
import re
import struct
import sys
import time
import typing

import openai
import pytest
from conftest import ROOT, Server

MODELS = (ROOT / "tests/fixtures/workers/openai.py").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llm")
    (folder / "models.py").write_text(MODELS)
    (folder / "model-settings.json").write_text(json.dumps({"name": "llm", "implementation": "models.Llm"}))
    with Server(folder, MLSERVER_PYTHON_EXECUTABLE=sys.executable, PATH=os.environ["PATH"]) as server:
        yield server.wait_until_ready()


def connect(server, **options):
    return openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key="none", **options)


@pytest.fixture
def client(server):
    with connect(server, max_retries=0) as client:
        yield client


def messages(text):
    return [{"role": "user", "content": text}]


def test_models_are_listed_and_retrieved(client):
    [model] = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("llm", "model", "mlserver")
    assert client.models.retrieve("llm") == model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("other")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


def test_chat_is_answered_whole_and_as_a_stream(client):
    answer = client.chat.completions.create(model="llm", messages=messages("a b"), extra_body={"top_k": 5})
    assert answer.choices[0].message.content == "a b"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 2)
    with client.chat.completions.create(model="llm", messages=messages("a b"), stream=True) as stream:
        chunks = list(stream)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "a", "b", None]
    assert chunks[-1].choices[0].finish_reason == "stop" and len({chunk.id for chunk in chunks}) == 1


def test_coroutines_of_the_client_do_the_same(server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/openai/v1", api_key="none") as client:
            whole = await client.chat.completions.create(model="llm", messages=messages("a b"))
            stream = await client.chat.completions.create(model="llm", messages=messages("a b"), stream=True)
            return whole.choices[0].message.content, [chunk.choices[0].delta.content async for chunk in stream]

    assert asyncio.run(ask()) == ("a b", ["", "a", "b", None])


def test_embeddings_come_as_base64_and_as_numbers(client):
    # The client asks for base64 unless it is told otherwise.
    usual = client.embeddings.create(model="llm", input=["a", "bcd"])
    assert [item.embedding for item in usual.data] == [[1.0, 0.5], [3.0, 0.5]]
    numbers = client.embeddings.create(model="llm", input="bcd", encoding_format="float")
    assert numbers.data[0].embedding == [3.0, 0.5]
    raw = client.embeddings.with_raw_response.create(model="llm", input="a", encoding_format="base64")
    [item] = json.loads(raw.text)["data"]
    assert struct.unpack("<2f", base64.b64decode(item["embedding"])) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("body", "exception", "code", "param"),
    [
        ({"model": "other", "input": "a"}, openai.NotFoundError, "model_not_found", "model"),
        ({"model": "llm", "input": []}, openai.BadRequestError, None, "input"),
        ({"model": "llm", "input": "a", "encoding_format": "hex"}, openai.BadRequestError, None, "encoding_format"),
    ],
)
def test_errors_are_the_exceptions_of_the_client(client, body, exception, code, param):
    with pytest.raises(exception) as error:
        client.embeddings.create(**body)
    assert (error.value.code, error.value.param) == (code, param)
    assert error.value.request_id == error.value.response.headers["x-request-id"] != ""


def test_errors_of_the_model_are_the_exceptions_of_the_client(client):
    with pytest.raises(openai.InternalServerError, match="ValueError: boom"):
        client.chat.completions.create(model="llm", messages=messages("fail"))
    with pytest.raises(openai.APIStatusError, match="not this") as error:
        client.chat.completions.create(model="llm", messages=messages("refuse"))
    assert error.value.status_code == 418
    with client.chat.completions.create(model="llm", messages=messages("a fail-later b"), stream=True) as stream:
        with pytest.raises(openai.APIError, match="ValueError: later"):
            list(stream)


def test_keys_are_those_of_the_server(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "model-settings.json").write_text(json.dumps({"name": "llm", "implementation": "models.Llm"}))
    import hashlib

    def key(name, **options):
        return {"name": name, "hash": "sha256:" + hashlib.sha256(name.encode()).hexdigest(), "scopes": ["infer"], **options}

    limit = {"rate_limit": {"requests_per_second": 1, "burst": 1}}
    keys = [key("all"), key("none", models=["other"]), key("slow", **limit)]
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "settings.json").write_text(json.dumps({"api_keys_file": "keys.json"}))
    with Server(tmp_path, MLSERVER_PYTHON_EXECUTABLE=sys.executable, PATH=os.environ["PATH"]) as server:
        server.wait_until_ready()

        def ask(name, **options):
            with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=name, **options) as client:
                return client.embeddings.create(model="llm", input="a").data[0].embedding

        assert ask("all") == [1.0, 0.5]
        with pytest.raises(openai.AuthenticationError) as error:
            ask("wrong", max_retries=0)
        assert error.value.code == "invalid_api_key"
        with pytest.raises(openai.PermissionDeniedError):
            ask("none", max_retries=0)
        ask("slow", max_retries=0)
        with pytest.raises(openai.RateLimitError) as error:
            ask("slow", max_retries=0)
        assert error.value.code == "rate_limit_exceeded"
        start = time.monotonic()
        assert ask("slow", max_retries=2) == [1.0, 0.5], "it asks again after `Retry-After`"
        assert time.monotonic() - start > 0.9


def test_closing_a_stream_ends_the_generator(server, client):
    closed = server.log.read_text().count("closed")
    stream = client.chat.completions.create(model="llm", messages=messages("a wait b"), stream=True)
    next(iter(stream))
    start = time.monotonic()
    stream.close()
    server.wait_for(lambda: server.log.read_text().count("closed") > closed)
    assert time.monotonic() - start < 1


def test_thousand_clients_of_which_each_second_disconnects_leave_nothing(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "model-settings.json").write_text(json.dumps({"name": "llm", "implementation": "models.Llm", "parameters": {"queue_target": 100, "queue_timeout": 100}}))
    limits = {"max_streams": 2000, "max_in_flight": 4000, "max_connections": 4000}
    (tmp_path / "settings.json").write_text(json.dumps(limits))
    body = json.dumps({"model": "llm", "messages": messages("a " * 50), "stream": True}).encode()
    head = f"POST /openai/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n"
    head += "content-type: application/json\r\nconnection: close\r\n\r\n"

    async def ask(host, port, disconnects):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head.encode() + body)
        if disconnects:
            beginning = await reader.read(1000)
            assert b"data: " in beginning, beginning
            writer.transport.abort()
            return True
        text = await reader.read()
        writer.close()
        assert b'"content":"a"' in text and b"data: [DONE]" in text, text
        return True

    async def ask_all(url):
        host, port = url.partition("://")[2].split(":")
        asked = (ask(host, int(port), number % 2 == 1) for number in range(1000))
        return await asyncio.wait_for(asyncio.gather(*asked), 120)

    with Server(tmp_path, MLSERVER_PYTHON_EXECUTABLE=sys.executable, PATH=os.environ["PATH"], MLSERVER_METRICS_ENDPOINT="/metrics", MLSERVER_METRICS_PORT="0") as server:
        server.wait_until_ready()
        assert all(asyncio.run(ask_all(server.url)))
        metrics = server.announced("Metrics")

        def series(name):
            import urllib.request

            text = urllib.request.urlopen(metrics + ("" if metrics.endswith("/metrics") else "/metrics")).read().decode()
            return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]

        server.wait_for(lambda: sum(series("model_infer_in_flight{")) == 0)
        server.wait_for(lambda: sum(series("request_bytes_in_flight ")) == 0)
        # Some had made all of the answer before they were cancelled.
        closed = server.wait_for(lambda: re.findall(r"closed 1000\b", server.log.read_text()))
        assert closed
        assert connect(server).chat.completions.create(model="llm", messages=messages("a")).choices


def test_langchain_answers(server):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(model="llm", base_url=f"{server.url}/openai/v1", api_key="none")
    assert chat.invoke("a b").content == "a b"
    assert "".join(chunk.content for chunk in chat.stream("a b")) == "ab"
    embeddings = OpenAIEmbeddings(
        model="llm", base_url=f"{server.url}/openai/v1", api_key="none", check_embedding_ctx_length=False
    )
    assert embeddings.embed_documents(["a", "bcd"]) == [[1.0, 0.5], [3.0, 0.5]]


def test_llama_index_answers(server):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model="llm", api_base=f"{server.url}/openai/v1", api_key="none", is_chat_model=True)
    assert llm.chat([ChatMessage(role="user", content="a b")]).message.content == "a b"


def test_litellm_answers(server):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks GitHub
    import litellm

    answer = litellm.completion(
        model="openai/llm", messages=messages("a b"), api_base=f"{server.url}/openai/v1", api_key="none"
    )
    assert answer.choices[0].message.content == "a b"


def fields(kind, seen=()):
    """Returns the names of the fields of a type of the client, and of those inside it."""
    if typing.get_origin(kind) is not None:
        return {name for argument in typing.get_args(kind) for name in fields(argument, seen)}
    if not hasattr(kind, "model_fields") or kind in seen:
        return set()
    inner = {name for field in kind.model_fields.values() for name in fields(field.annotation, (*seen, kind))}
    return set(kind.model_fields) | inner


def test_fields_of_answers_are_those_of_the_client(client, server):
    from openai.types import CreateEmbeddingResponse, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    def sent(value):
        if isinstance(value, dict):
            return set(value) | {name for item in value.values() for name in sent(item)}
        return {name for item in value for name in sent(item)} if isinstance(value, list) else set()

    chat = client.chat.completions.with_raw_response.create(model="llm", messages=messages("a"))
    assert sent(json.loads(chat.text)) <= fields(ChatCompletion)
    stream = server.post("/openai/v1/chat/completions", {"model": "llm", "messages": messages("a"), "stream": True}).body
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    assert events and sent(events) <= fields(ChatCompletionChunk)
    vectors = client.embeddings.with_raw_response.create(model="llm", input="a")
    assert sent(json.loads(vectors.text)) <= fields(CreateEmbeddingResponse)
    models = client.models.with_raw_response.list()
    assert sent(json.loads(models.text)["data"]) <= fields(Model)
