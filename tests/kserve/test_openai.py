"""KServe's OpenAI classes, run by this server and KServe's: the same script, requests and answers."""

import json
import shutil
from pathlib import Path

import pytest
from support import answer, python_of, serving

SOURCES = Path(__file__).resolve().parent / "openai"
NAMES = ["llm", "adapter", "encoder", "proxy"]


@pytest.fixture(scope="module", params=["kserve", "without_kserve"])
def servers(request, tmp_path_factory):
    """Runs the script on both servers. The models of this one have KServe's classes, with the shape of vLLM, or not."""
    python = python_of(request.param, tmp_path_factory)
    folder = tmp_path_factory.mktemp("openai") / "openai"
    shutil.copytree(SOURCES, folder)
    script = folder / "llm.py"
    with serving("ours", script, NAMES[:1], python=python, UPSTREAM="http://127.0.0.1:9") as (upstream, _):
        variables = {"UPSTREAM": f"{upstream}/openai"}
        ours = serving("ours", script, NAMES, python=python, **variables)
        with ours as first, serving("kserve", script, NAMES, **variables) as second:
            yield [first[0], second[0]]


def chat(model, text, **fields):
    return "chat/completions", {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def completion(model, prompt, **fields):
    return "completions", {"model": model, "prompt": prompt, **fields}


def embeddings(*texts, **fields):
    return "embeddings", {"model": "encoder", "input": texts, **fields}


def rerank(*documents, **fields):
    return "rerank", {"model": "encoder", "query": "q", "documents": documents, **fields}


def present(value):
    """Removes ids, times and fields without a value."""
    if isinstance(value, dict):
        return {
            name: present(item) for name, item in value.items() if item is not None and name not in ("id", "created")
        }
    return [present(item) for item in value] if isinstance(value, list) else value


def asked(servers, path, body):
    """Returns the statuses and the answers of both servers. Those of a stream are its events."""
    found = []
    for base in servers:
        status, headers, content = answer(base, f"/openai/v1/{path}", body)
        if headers["content-type"].startswith("text/event-stream"):
            events = [event.removeprefix("data: ") for event in content.decode().split("\n\n") if event]
            parsed = [event if event == "[DONE]" else json.loads(event) for event in events]
        else:
            parsed = json.loads(content)
        found.append((status, present(parsed)))
    return found


@pytest.mark.parametrize(
    "request_",
    [
        chat("llm", "hi"),
        completion("llm", "hi you"),
        completion("llm", "hi you", stream=True),
        completion("llm", "hi", n=2),
        completion("llm", "fields"),
        completion("llm", "fields", temperature=0.5, max_tokens=3, own=[1], stop=["x"]),
        chat("adapter", "hi you"),
        completion("adapter", "hi you"),
        embeddings("a", "bcd"),
        rerank("a", "b", "c"),
        rerank("a", "b", "c", top_n=2),
        rerank("a", "b", "c", top_n=0),
        completion("proxy", "hi you"),
        completion("proxy", "fields", temperature=0.5, own=[1]),
    ],
    ids=str,
)
def test_answers_are_the_same(servers, request_):
    ours, theirs = asked(servers, *request_)
    assert ours == theirs
    assert ours[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (completion("llm", "words"), 500),
        (completion("llm", "slow"), 429),
        (completion("llm", "returned"), 400),
        (completion("proxy", "slow"), 429),
        (completion("proxy", "words"), 500),
    ],
    ids=str,
)
def test_errors_of_models_are_the_same(servers, request_, status):
    ours, theirs = asked(servers, *request_)
    assert ours == theirs
    assert ours[0] == status


def test_proxy_without_its_upstream_has_the_same_status(servers):
    ours, theirs = asked(servers, *completion("down", "hi"))
    assert ours[0] == theirs[0] == 503
    for name in ("type", "code", "param"):
        assert ours[1]["error"][name] == theirs[1]["error"][name]


def test_streams_of_proxies_have_chunks(servers):
    # KServe's server cannot send them: it answers with 500.
    (status, events), theirs = asked(servers, *completion("proxy", "hi you", stream=True))
    assert (status, theirs[0]) == (200, 500)
    assert [event["choices"][0]["text"] for event in events[:-1]] == ["hi", "you"]
    assert [event["model"] for event in events[:-1]] == ["proxy", "proxy"]


def test_codes_of_the_upstream_reach_the_client(servers):
    # KServe's server fails with `int("model_not_found")`.
    (status, body), theirs = asked(servers, *completion("proxy", "hi", user="nobody"))
    assert (status, theirs[0]) == (404, 500)
    assert (body["error"]["code"], body["error"]["param"]) == ("model_not_found", "model")


def test_requests_that_the_types_refuse_name_the_field(servers):
    (status, body), theirs = asked(servers, *completion("llm", "hi", temperature="hot"))
    if status == 200:
        pytest.skip("the types of this server check nothing")
    assert (status, theirs[0]) == (400, 422)
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", "temperature")


def test_encoder_answers_v1_too(servers):
    for base in servers:
        status, _, body = answer(base, "/v1/models/encoder:predict", {"instances": ["abc"]})
        assert (status, json.loads(body)) == (200, {"predictions": [[3.0, 0.5]]})
