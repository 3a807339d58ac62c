"""The OpenAPI documents: valid, consistent with the server's responses, and with examples that work."""

import re
import subprocess
import sys
from urllib.parse import quote

import pytest
import schemathesis
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup

from conftest import Server, model, quickstart

DATATYPES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 BF16 FP32 FP64 BYTES".split()
# A name that would break careless escaping in paths, pages and documents.
ODD_NAME = 'a "b" <c> {d} ü%2F'
BODY_LIMIT = 100_000
#: Has what every endpoint of OpenAI's API needs.
OPENAI = {"model": "nope", "messages": [{}], "prompt": "a", "input": "a", "query": "a", "documents": ["a"]}
V1 = {"instances": [[6.2, 2.8, 4.8, 1.8]]}
IRIS = {"inputs": [{"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": [6.2, 2.8, 4.8, 1.8]}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = quickstart(tmp_path_factory.mktemp("models"))
    every_datatype = [{"name": name.lower(), "datatype": name, "shape": [-1, 2]} for name in DATATYPES]
    model(folder, ODD_NAME, inputs=every_datatype, outputs=every_datatype)
    model(folder, "undeclared")
    model(folder, "scratch")
    model(folder, "image", inputs=[{"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 224, 224]}])
    server = Server(folder, MLSERVER_HTTP_MAX_BODY_BYTES=str(BODY_LIMIT)).wait_until_ready()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A server with a model that cannot be loaded."""
    folder = tmp_path_factory.mktemp("models")
    implementation = "mlserver_xgboost.XGBoostModel"
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    model(folder, "broken", implementation=implementation, parameters={"uri": "./nothing.json"}, inputs=inputs)
    server = Server(folder, MLSERVER_EXIT_ON_LOAD_FAILURE="false")
    server.wait_for(lambda: b"FAILED" in server.get("/v2/health/ready").body)
    yield server
    server.stop()


def of_model(name, version=None):
    version = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(name, safe='')}{version}/docs/dataplane.json"


DOCUMENTS = [
    "/openapi.json",
    "/v2/docs/dataplane.json",
    of_model("iris-xgboost"),
    of_model("iris-xgboost", "v1.0.0"),
    of_model("breast-cancer-lightgbm"),
    of_model(ODD_NAME),
    of_model("undeclared"),
    of_model("image"),
]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_are_valid(server, path):
    answer = server.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    validate(answer.json())


def load(server, path):
    return schemathesis.openapi.from_url(server.url + path)


def ask(server, operation, expected, **parts):
    """Sends a request and checks the response against the document: status, content type, body."""
    if "body" in parts:
        parts.setdefault("media_type", "application/json")
    case = operation.Case(**parts)
    answer = case.call(base_url=server.url)
    assert answer.status_code == expected, (operation.label, answer.content)
    # 501 is what a model without an explainer is answered with.
    excluded = [not_a_server_error] if expected == 501 else []
    case.validate_response(answer, excluded_checks=excluded)
    return answer


def operations(schema):
    return [result.ok() for result in schema.get_all_operations()]


def test_responses_match_the_document(server):
    page = server.get("/v2/docs").body.decode()
    for operation in operations(load(server, "/openapi.json")):
        known = {"model_name": "iris-xgboost", "model_version": "v1.0.0", "file": re.search(r"\w+-start.js", page)[0]}
        known.update(namespace="default", deployment="flowers")
        if operation.tags == ["console"]:
            known["file"] = re.search(r"assets/([\w-]+\.js)", server.get("/v2/console").body.decode())[1]
        if operation.tags == ["repository"]:
            known["model_name"] = "scratch"
        names = re.findall(r"{(\w+)}", operation.path)
        if operation.tags == ["openai"]:
            # No model of this server answers; `test_openai.py` has models that do.
            if operation.method == "post":
                ask(server, operation, 400, body={})
                ask(server, operation, 404, body=OPENAI)
            else:
                ask(server, operation, 404 if names else 200, path_parameters=dict.fromkeys(names, "nope"))
            continue
        path = {"path_parameters": {name: known[name] for name in names}}
        unknown = {"path_parameters": {name: "nope" for name in names}}
        is_v1 = operation.path.endswith((":predict", ":explain"))
        is_v2 = operation.tags in (["inference"], ["seldon"])
        body = {"body": IRIS} if is_v2 else {"body": V1} if is_v1 else {}
        if operation.path.endswith("/v2/models/infer"):
            # Of the only inference graph, which this server does not have.
            ask(server, operation, 404, **path, **body)
            continue
        # A model of trees explains itself; others have no explainer.
        explained = 200 if path["path_parameters"].get("model_name") == "iris-xgboost" else 501
        ask(server, operation, explained if operation.path.endswith(":explain") else 200, **path, **body)
        if names:
            ask(server, operation, 404, **unknown, **body)
        if is_v1:
            ask(server, operation, 413, **path, body={**V1, "id": "x" * BODY_LIMIT})
            ask(server, operation, 415, **path, body=V1, headers={"content-encoding": "br"})
        if operation.path.endswith(":predict"):
            ask(server, operation, 400, **path, body={})
            event = {"specversion": "1.0", "id": "i", "source": "s", "type": "t", "data": V1}
            ask(server, operation, 200, **path, body=event, headers={"content-type": "application/cloudevents+json"})
        if is_v2:
            ask(server, operation, 400, **path, body={"inputs": []})
            ask(server, operation, 413, **path, body={**IRIS, "id": "x" * BODY_LIMIT})
            ask(server, operation, 415, **path, body=IRIS, headers={"content-encoding": "br"})
            ask(server, operation, 422, **path, body={})
            length = {"headers": {"Inference-Header-Content-Length": "1000000"}}
            ask(server, operation, 400, **path, body=b"{}", media_type="application/octet-stream", **length)
        if operation.path.endswith("/infer"):
            binary = {**IRIS, "outputs": [{"name": "predict", "parameters": {"binary_data": True}}]}
            answer = ask(server, operation, 200, **path, body=binary)
            assert answer.headers["content-type"] == ["application/octet-stream"]
        if operation.path == "/v2/repository/index":
            states = {line["name"]: line["state"] for line in ask(server, operation, 200, body={}).json()}
            assert states["iris-xgboost"] == "READY"
            ask(server, operation, 400, body={}, headers={"content-encoding": "gzip"})
            ask(server, operation, 415, body={}, headers={"content-encoding": "br"})
            ask(server, operation, 422, body={"ready": 5})
        if operation.tags == ["repository"]:
            ask(server, operation, 413, **path, body={"x": "x" * BODY_LIMIT})


def test_responses_of_an_unready_server_match_the_document(broken):
    schema = load(broken, "/openapi.json")
    ask(broken, schema["/v2/health/ready"]["GET"], 400)
    ask(broken, schema["/v2/models/{model_name}/ready"]["GET"], 400, path_parameters={"model_name": "broken"})
    infer = schema["/v2/models/{model_name}/infer"]["POST"]
    ask(broken, infer, 400, path_parameters={"model_name": "broken"}, body=IRIS)
    (line,) = ask(broken, schema["/v2/repository/index"]["POST"], 200, body={}).json()
    assert (line["state"], line["reason"] != "") == ("UNAVAILABLE", True)
    reload = schema["/v2/repository/models/{model_name}/load"]["POST"]
    ask(broken, reload, 422, path_parameters={"model_name": "broken"})
    ask(broken, schema["/v2/health/ready"]["GET"], 400)


def test_unready_model_is_documented(broken):
    document = broken.get(of_model("broken")).json()
    assert example(document)["inputs"][0]["shape"] == [1, 4]
    assert broken.get("/v2/models/broken/docs").status == 200


def example(document):
    content = document["components"]["requestBodies"]["InferenceRequest"]["content"]["application/json"]
    return content.get("example")


MODELS = [("iris-xgboost", None), ("iris-xgboost", "v1.0.0"), ("breast-cancer-lightgbm", None), (ODD_NAME, None)]


@pytest.mark.parametrize(("name", "version"), MODELS)
def test_documented_examples_are_answered(server, name, version):
    body = example(server.get(of_model(name, version)).json())
    seen = set()
    for operation in operations(load(server, of_model(name, version))):
        parts = {"body": body} if operation.method == "post" else {}
        answer = ask(server, operation, 200, **parts)
        if parts and not operation.path.endswith("_stream"):
            # The response is described by this model's own outputs, which must be present.
            assert answer.json()["model_name"] == name
            assert answer.json()["outputs"]
        seen.add(operation.path.rpartition("/")[2])
    assert {"infer", "generate", "infer_stream", "generate_stream", "ready"} < seen


def test_documented_examples_follow_declared_inputs(server):
    iris = example(server.get(of_model("iris-xgboost")).json())
    assert iris == {"inputs": [{"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": [0.5] * 4}]}
    odd = example(server.get(of_model(ODD_NAME)).json())
    assert [(tensor["datatype"], tensor["shape"]) for tensor in odd["inputs"]] == [(name, [1, 2]) for name in DATATYPES]
    # The generic example if nothing is declared, and none at all instead of 150528 numbers.
    assert example(server.get(of_model("undeclared")).json()) == example(server.get("/openapi.json").json())
    assert example(server.get(of_model("image")).json()) is None


def test_wrong_responses_are_detected(server):
    """The documents are strict enough to reject wrong responses."""
    operation = load(server, of_model("iris-xgboost"))["/v2/models/iris-xgboost/infer"]["POST"]
    case = operation.Case(body=IRIS, media_type="application/json")
    for right, wrong in [("INT64", "INT32"), ("predict", "other"), ("[1,1]", "[1]"), ("[2]", "[2.5]"), ("id", "ID")]:
        answer = case.call(base_url=server.url)
        answer.content = answer.content.replace(right.encode(), wrong.encode())
        with pytest.raises(FailureGroup):
            case.validate_response(answer)


@pytest.mark.parametrize(
    ("document", "name", "mode"),
    [
        ("/openapi.json", "iris-xgboost", "all"),
        ("/openapi.json", "undeclared", "all"),
        # A model's own document lists the declared inputs, which is less than what the server passes on.
        (of_model("iris-xgboost"), "", "positive"),
        (of_model(ODD_NAME), "", "positive"),
    ],
)
def test_schemathesis_finds_no_failure(server, tmp_path, document, name, mode):
    config = tmp_path / "schemathesis.toml"
    version = "v1.0.0" if name == "iris-xgboost" else "nope"
    config.write_text(
        f"""
        [parameters]
        "path.model_name" = "{name}"
        "path.model_version" = "{version}"
        [[operations]]
        include-tag = "repository"
        parameters = {{ "path.model_name" = "scratch" }}
        [[operations]]
        include-operation-id = "v1-explain"
        checks.not_a_server_error.enabled = false  # 501: no explainer
        """
    )
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", server.url + document]
    command += ["--url", server.url, "--mode", mode, "--seed", "1", "--max-examples", "20"]
    # No schema can express that data fits its shape, or which inputs and outputs a model has.
    command += ["--exclude-checks", "positive_data_acceptance", "--warnings", "off", "--no-color"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr
    assert int(re.search(r"(\d+) generated", run.stdout)[1]) > 100, "too few to say anything"
