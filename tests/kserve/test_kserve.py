"""KServe's unmodified clients, against this server and KServe's own: the same models, requests and answers."""

import asyncio
import json
import random
from pathlib import Path

import grpc
import joblib
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from support import PATIENCE, answer, both, python_of, serving

HERE = Path(__file__).resolve().parent
SEED = 7


@pytest.fixture(scope="session", params=["kserve", "without_kserve"])
def servers(request, tmp_path_factory):
    """Returns URL and gRPC address of this server, whose models have KServe's package or not, and of KServe's server."""
    python = python_of(request.param, tmp_path_factory)
    folder = tmp_path_factory.mktemp("kserve")
    features, classes = load_iris(return_X_y=True)
    joblib.dump(LogisticRegression(max_iter=1000).fit(features, classes), folder / "iris.joblib")
    source = (HERE / "models.py").read_text()
    (folder / "models.py").write_text(source)
    (folder / "reference.py").write_text((HERE / "reference.py").read_text())
    ours = folder / "ours"
    classes = {"iris": "Classifier", "echo": "Echo", "steps": "Steps", "troubled": "Troubled", "late": "Late"}
    classes.update({"fields": "Fields", "own_call": "OwnCall"})
    for name, cls in classes.items():
        (ours / name).mkdir(parents=True)
        (ours / name / "models.py").write_text(source)
        settings = {"name": name, "implementation": f"models.{cls}"}
        if name == "iris":
            settings["parameters"] = {"extra": {"path": str(folder / "iris.joblib")}}
        (ours / name / "model-settings.json").write_text(json.dumps(settings))
    (ours / "native").mkdir()
    native = {"name": "native", "implementation": "mlserver_sklearn.SKLearnModel"}
    native["parameters"] = {"uri": str(folder / "iris.joblib")}
    (ours / "native" / "model-settings.json").write_text(json.dumps(native))
    names = ["iris", "echo", "steps", "troubled", "fields", "own_call"]
    # `late`, which only this server has, is never ready.
    own = serving("ours", ours, [*names, "native"], "--set", "exit_on_load_failure=false", python=python)
    with own as first, serving("kserve", folder / "reference.py", names) as second:
        yield [first, second]


def rows(random_, columns, integers=False):
    count = random_.randint(1, 8)
    value = (lambda: random_.randint(-(10**6), 10**6)) if integers else (lambda: random_.uniform(-9, 9))
    return [[value() for _ in range(columns)] for _ in range(count)]


def test_v1_predictions_are_the_same(servers):
    random_ = random.Random(SEED)
    for case in range(120):
        model = ("iris", "native", "echo", "steps")[case % 4]
        columns = 4 if model in ("iris", "native") else random_.randint(1, 5)
        body = {"instances": rows(random_, columns, integers=case % 3 == 0)}
        if model in ("iris", "native") and case % 5 == 0:
            body = {"inputs": body["instances"]}
        reference = "iris" if model == "native" else model
        ours = answer(servers[0][0], f"/v1/models/{model}:predict", body)
        theirs = answer(servers[1][0], f"/v1/models/{reference}:predict", body)
        assert ours[0] == theirs[0] == 200, (ours, theirs)
        assert ours[2] == theirs[2], (model, body)
        assert ours[1]["content-type"] == theirs[1]["content-type"]


def test_v1_explanations_are_the_same(servers):
    random_ = random.Random(SEED)
    for _ in range(20):
        ours, theirs = both(servers, "/v1/models/steps:explain", {"instances": rows(random_, 3)})
        assert ours == theirs


@pytest.mark.parametrize("path", ["/", "/v1/models/iris", "/v1/models/nope", "/v2/health/live"])
def test_get_routes_are_the_same(servers, path):
    ours, theirs = both(servers, path)
    assert ours == theirs


def test_models_that_are_not_ready_are_503(servers):
    for path, body in (("/v1/models/late", None), ("/v1/models/late:predict", {"instances": [1]})):
        # KServe's server does not even know a model that is not ready when it starts.
        status, _, text = answer(servers[0][0], path, body)
        assert (status, json.loads(text)) == (503, {"error": "Model with name late is not ready."})


@pytest.mark.parametrize(
    ("action", "status"),
    [("invalid", 400), ("divide", 500), ("later", 501), ("array", 200), ("nan", 200), ("other", 200)],
)
def test_v1_troubles_are_the_same(servers, action, status):
    ours, theirs = both(servers, "/v1/models/troubled:predict", {"instances": [action]})
    assert ours == theirs
    assert ours[0] == status


@pytest.mark.parametrize("body", [b"{not", b"", b'{"instances":"word"}', b"[1]", b'{"instances":[1e999]}', b"nul"])
def test_v1_mistakes_are_4xx(servers, body):
    for model in ("native", "iris"):
        status, _, text = answer(servers[0][0], f"/v1/models/{model}:predict", body)
        assert 400 <= status < 500 or (model == "iris" and status == 500), (model, text)
        assert list(json.loads(text)) == ["error"]
    theirs = answer(servers[1][0], "/v1/models/iris:predict", body)
    assert theirs[0] >= 400


def test_deep_bodies_end_in_4xx(servers):
    deep = b'{"instances":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    for model in ("native", "echo"):
        status, _, text = answer(servers[0][0], f"/v1/models/{model}:predict", deep)
        assert status == 400, text[:200]


EVENT = {"ce_specversion": "1.0", "ce_id": "abc", "ce_source": "src", "ce_type": "typ"}


def attributes(headers):
    found = {name.lower(): value for name, value in headers.items() if name.lower().startswith("ce-")}
    assert found.pop("ce-id") != "abc"
    assert found.pop("ce-time")
    return found


def test_cloud_events_are_the_same(servers):
    body = {"instances": [[1, 2]]}
    for model in ("echo", "steps"):
        ours, theirs = (answer(base, f"/v1/models/{model}:predict", body, **EVENT) for base, _ in servers)
        assert ours[0] == theirs[0] == 200
        assert attributes(ours[1]) == attributes(theirs[1])
        assert json.loads(ours[2]) == json.loads(theirs[2])
        event = {
            "specversion": "1.0",
            "id": "abc",
            "source": "s",
            "type": "t",
            "time": "2026-01-01T00:00:00Z",
            "data": body,
        }
        ours, theirs = (
            answer(base, f"/v1/models/{model}:predict", event, content_type="application/cloudevents+json")
            for base, _ in servers
        )
        assert ours[1]["content-type"] == theirs[1]["content-type"] == "application/cloudevents+json"
        found = [json.loads(text) for _, _, text in (ours, theirs)]
        for event in found:
            assert event.pop("id")
            assert event.pop("time")
        assert found[0] == found[1]


DATATYPES = {
    "BOOL": lambda r, n: np.array([r.random() < 0.5 for _ in range(n)]),
    "INT8": lambda r, n: np.array([r.randint(-128, 127) for _ in range(n)], np.int8),
    "INT64": lambda r, n: np.array([r.randint(-(2**62), 2**62) for _ in range(n)], np.int64),
    "UINT16": lambda r, n: np.array([r.randint(0, 65535) for _ in range(n)], np.uint16),
    "FP16": lambda r, n: np.array([r.uniform(-9, 9) for _ in range(n)], np.float16),
    "FP32": lambda r, n: np.array([r.uniform(-9, 9) for _ in range(n)], np.float32),
    "FP64": lambda r, n: np.array([r.uniform(-9, 9) for _ in range(n)], np.float64),
    "BYTES": lambda r, n: np.array([f"text {r.random()}".encode() for _ in range(n)], np.object_),
}


def infer_request(random_, datatype, binary, request_id):
    shape = [random_.randint(1, 4), random_.randint(1, 4)]
    values = DATATYPES[datatype](random_, shape[0] * shape[1]).reshape(shape)
    tensor = InferInput("x", shape, datatype)
    tensor.set_data_from_numpy(values, binary_data=binary)
    parameters = {"binary_data_output": True} if binary else None
    return InferRequest("echo", [tensor], request_id=request_id, parameters=parameters)


def fields(response):
    """Returns what a client sees of a response."""
    outputs = [(o.name, list(o.shape), o.datatype, o.as_numpy().tolist()) for o in response.outputs]
    return response.id, response.model_name, outputs


def rest_client():
    return InferenceRESTClient(RESTConfig(protocol="v2", retries=1, timeout=PATIENCE))


def test_v2_rest_client_gets_the_same(servers):
    random_ = random.Random(SEED)

    async def run():
        client = rest_client()
        for case in range(len(DATATYPES) * 8):
            datatype = list(DATATYPES)[case % len(DATATYPES)]
            # JSON has no FP16 in KServe.
            binary = case % 2 == 0 or datatype == "FP16"
            request = infer_request(random_, datatype, binary, f"r{case}")
            found = [fields(await client.infer(base, request, model_name="echo")) for base, _ in servers]
            assert found[0] == found[1], (datatype, binary)
        for base, _ in servers:
            assert await client.is_server_live(base)
            assert await client.is_model_ready(base, "echo")

    asyncio.run(run())


def test_v1_rest_client_works(servers):
    async def run():
        client = InferenceRESTClient(RESTConfig(protocol="v1", retries=1, timeout=PATIENCE))
        for base, _ in servers:
            assert await client.is_server_live(base)
            assert await client.is_model_ready(base, "iris")
            assert await client.infer(base, {"instances": [[5.1, 3.5, 1.4, 0.2]]}, model_name="iris") == {
                "predictions": [0]
            }
            assert await client.explain(base, "steps", {"instances": [[1, 2]]}) == {"explanations": [5], "by": "steps"}

    asyncio.run(run())


def test_v2_grpc_client_gets_the_same(servers):
    random_ = random.Random(SEED)

    async def run():
        clients = [InferenceGRPCClient(address, timeout=PATIENCE) for _, address in servers]
        try:
            for case in range(len(DATATYPES) * 8):
                datatype = list(DATATYPES)[case % len(DATATYPES)]
                # Typed contents have no FP16.
                binary = case % 2 == 0 or datatype == "FP16"
                request = infer_request(random_, datatype, binary, f"g{case}")
                found = [fields(await client.infer(request)) for client in clients]
                assert found[0] == found[1], (datatype, binary)
            for client in clients:
                assert await client.is_server_live()
                assert await client.is_model_ready("echo")
        finally:
            for client in clients:
                await client.close()

    asyncio.run(run())


def test_v2_answers_are_the_same_in_json(servers):
    random_ = random.Random(SEED)
    for case in range(30):
        values = rows(random_, 3)
        body = {
            "id": f"j{case}",
            "inputs": [{"name": "x", "shape": [len(values), 3], "datatype": "FP64", "data": np.ravel(values).tolist()}],
        }
        (ours_status, ours), (theirs_status, theirs) = both(servers, "/v2/models/steps/infer", body)
        assert ours_status == theirs_status == 200, (ours, theirs)
        # MLServer leaves out what KServe writes as null.
        theirs = {name: value for name, value in theirs.items() if value is not None}
        for output in theirs["outputs"]:
            del output["parameters"]
        assert ours == theirs


def grpc_answer(address, action):
    """Returns what the model `fields` answers over gRPC."""
    tensor = pb.ModelInferRequest.InferInputTensor(
        name="x",
        shape=[1],
        datatype="BYTES",
        contents=pb.InferTensorContents(bytes_contents=[action.encode()]),
        parameters={"t": pb.InferParameter(int64_param=3)},
    )
    requested = pb.ModelInferRequest.InferRequestedOutputTensor(
        name="o", parameters={"z": pb.InferParameter(int64_param=5)}
    )
    parameters = {"a": pb.InferParameter(string_param="s"), "n": pb.InferParameter(bool_param=True)}
    request = pb.ModelInferRequest(
        model_name="fields", id="7", inputs=[tensor], outputs=[requested], parameters=parameters
    )
    with grpc.insecure_channel(address) as channel:
        try:
            return GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            return error.code()


@pytest.mark.parametrize("action", ["invalid", "not found", "failed", "unsupported", "value"])
def test_grpc_codes_are_the_same(servers, action):
    ours, theirs = (grpc_answer(address, action) for _, address in servers)
    assert ours == theirs
    assert isinstance(ours, grpc.StatusCode)


@pytest.mark.parametrize("action", ["seen", "named"])
def test_fields_of_grpc_are_the_same(servers, action):
    ours, theirs = (grpc_answer(address, action) for _, address in servers)
    assert ours == theirs


@pytest.mark.parametrize("action", ["seen", "named", "dictionary"])
def test_fields_of_json_are_the_same(servers, action):
    body = {
        "id": "7",
        "parameters": {"a": "s"},
        "inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": [action], "parameters": {"t": 3}}],
        "outputs": [{"name": "o"}],
    }
    ours, theirs = both(servers, "/v2/models/fields/infer", body)
    # This server leaves out what KServe writes as null, and writes `parameters` always.
    theirs = {name: value for name, value in theirs[1].items() if value is not None}
    for output in theirs["outputs"]:
        if output["parameters"] is None:
            del output["parameters"]
    assert ours == (200, {"parameters": {}, **theirs})


def test_model_may_override_call(servers):
    for verb in ("predict", "explain"):
        ours, theirs = both(servers, f"/v1/models/own_call:{verb}", {"instances": [1, 2]})
        assert ours == theirs
        assert ours[0] == 200
    body = {"id": "7", "inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [3]}]}
    ours, theirs = both(servers, "/v2/models/own_call/infer", body)
    assert ours[0] == theirs[0] == 200
    assert ours[1]["outputs"][0]["data"] == theirs[1]["outputs"][0]["data"] == [1]
