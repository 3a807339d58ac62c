"""Transformers before predictors of this server, over all protocols.

Each script of transformers runs on KServe's own server, on this one with KServe's package, and on this one without it.
"""

import asyncio
import base64
import io
import json
import shutil
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferInput, InferRequest
from PIL import Image
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from support import PATIENCE, answer, free_port, python_of, serving

HERE = Path(__file__).resolve().parent
PROTOCOLS = ["v1", "v2", "grpc-v2"]
MODELS = ["digits", "drivers", "explained", "seen", "failing", "unknown"]
DIGITS = LogisticRegression(max_iter=3000).fit(*load_digits(return_X_y=True))
DRIVERS = LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True))


@pytest.fixture(scope="session")
def predictor(tmp_path_factory):
    """Serves the predictors, and returns their addresses by protocol."""
    folder = tmp_path_factory.mktemp("predictors")

    def settings(name, implementation, uri="."):
        (folder / name).mkdir()
        text = {"name": name, "implementation": implementation, "parameters": {"uri": uri}}
        (folder / name / "model-settings.json").write_text(json.dumps(text))

    for name, model in {"digits": DIGITS, "drivers": DRIVERS, "explained": DIGITS}.items():
        settings(name, "mlserver_sklearn.SKLearnModel", "./model.joblib")
        joblib.dump(model, folder / name / "model.joblib")
    names = ["digits", "drivers", "explained", "seen", "failing", *(f"slow-{protocol}" for protocol in PROTOCOLS)]
    for name in names[3:]:
        settings(name, f"predictors.{name.partition('-')[0].capitalize()}")
        shutil.copy(HERE / "predictors.py", folder / name)
    with serving("ours", folder, names) as (base, grpc):
        http = base.removeprefix("http://")
        yield {"v1": http, "v2": http, "grpc-v2": grpc}


class Transformers:
    """A server of transformers: KServe's ("theirs"), or this one, with KServe's package ("kserve") or without."""

    def __init__(self, kind, addresses):
        self.kind = kind
        self.base, self.grpc = addresses

    def predict(self, model, instances, **headers):
        return self._ask(f"/v1/models/{model}:predict", {"instances": instances}, **headers)

    def explain(self, model, instances):
        return self._ask(f"/v1/models/{model}:explain", {"instances": instances})

    def pass_on(self, model, protocol, value, **headers):
        """Asks a model that passes requests on, in the protocol of its predictor."""
        if protocol == "v1":
            return self.predict(model, [value], **headers)
        tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": [value]}
        return self._ask(f"/v2/models/{model}/infer", {"inputs": [tensor]}, **headers)

    def _ask(self, path, body, **headers):
        status, _, text = answer(self.base, path, body, **headers)
        return status, json.loads(text)


@pytest.fixture(
    scope="module",
    params=[(kind, protocol) for kind in ("theirs", "kserve", "without_kserve") for protocol in PROTOCOLS],
    ids="-".join,
)
def transformers(request, predictor, tmp_path_factory):
    """Runs the script of transformers, as users of KServe do."""
    kind, protocol = request.param
    script = tmp_path_factory.mktemp("transformers") / "transformers.py"
    shutil.copy(HERE / "samples" / "transformers.py", script)
    options = ["--predictor_host", predictor[protocol], "--predictor_protocol", protocol]
    python = python_of("without_kserve" if kind == "without_kserve" else "kserve", tmp_path_factory)
    with serving("theirs" if kind == "theirs" else "ours", script, MODELS, *options, python=python) as addresses:
        found = Transformers(kind, addresses)
        found.protocol = protocol
        yield found


def digit(index):
    """Returns an image of 8 by 8 pixels, which the transformer turns into a row of the data set."""
    content = io.BytesIO()
    Image.fromarray((load_digits().images[index] * 15).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


def images(*contents):
    return [{"image": {"b64": base64.b64encode(content).decode()}} for content in contents]


def test_images_are_transformed_and_predicted(transformers):
    found = transformers.predict("digits", images(digit(0), digit(1), digit(2)))
    assert found == (200, {"predictions": [0, 1, 2], "by": "digits"})


def test_images_over_grpc_are_transformed_and_predicted(transformers):
    tensor = InferInput("image", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([digit(3), digit(5)], dtype=object))

    async def ask():
        client = InferenceGRPCClient(transformers.grpc, timeout=PATIENCE)
        try:
            return await client.infer(InferRequest("digits", [tensor]))
        finally:
            await client.close()

    (output,) = asyncio.run(ask()).outputs
    assert (output.name, list(output.shape), output.datatype) == ("output-0", [2], "INT64")
    assert output.as_numpy().tolist() == [3, 5]


def test_drivers_are_looked_up_and_predicted(transformers):
    status, found = transformers.predict("drivers", [[1001], [1002], [1003]])
    assert status == 200, found
    # The model returns the predictor's answer as it is.
    predictions = found["predictions"] if transformers.protocol == "v1" else found["outputs"][0]["data"]
    assert predictions == [0, 2, 1]
    assert transformers.predict("drivers", [[7]]) == (500, {"error": "KeyError : 7"})


def test_explainer_asks_its_predictor(transformers):
    images_without_a_part = [load_digits().images[3].copy() for _ in range(4)]
    for image, (top, left) in zip(images_without_a_part, [(0, 0), (0, 4), (4, 0), (4, 4)]):
        image[top : top + 4, left : left + 4] = 0
    labels = DIGITS.predict(np.stack(images_without_a_part).reshape(4, 64)).tolist()
    expected = {"label": 3, "needs": [label != 3 for label in labels]}
    assert set(expected["needs"]) == {True, False}
    found = transformers.explain("explained", images(digit(3)))
    assert found == (200, {"predictions": [expected], "by": "explained"})


def test_only_known_headers_are_passed_on(transformers):
    headers = {"authorization": "Bearer t", "x-request-id": "r1", "x-b3-traceid": "463ac35c9f6413ad"}
    sent = {name.replace("-", "_"): value for name, value in {**headers, "x-own": "no", "cookie": "c=1"}.items()}
    status, found = transformers.pass_on("seen", transformers.protocol, "x", **sent)
    assert status == 200, found
    texts = found["predictions"] if transformers.protocol == "v1" else found["outputs"][0]["data"]
    seen = dict(text.split(": ", 1) for text in texts)
    assert headers.items() <= seen.items(), seen
    assert not {"x-own", "cookie"} & set(seen), seen


@pytest.mark.parametrize(
    ("model", "action", "statuses", "message"),
    [
        ("failing", "invalid", (400, 400), "the value is not valid"),
        # gRPC has no code for the status of this error, as in the original.
        ("failing", "busy", (503, 500), "no room"),
        ("failing", "fault", (500, 500), "builtins.ValueError: a fault of the model"),
        ("unknown", "x", (404, 404), ""),
    ],
)
def test_failure_of_the_predictor(transformers, model, action, statuses, message):
    status, found = transformers.pass_on(model, transformers.protocol, action)
    assert message in found["error"]
    if transformers.kind == "without_kserve":
        assert status == statuses[transformers.protocol == "grpc-v2"], found
        assert "\n" not in found["error"]
    else:
        # KServe's clients raise errors of httpx and grpcio, which its server does not know.
        assert status == 500, found
        assert found["error"].startswith(("HTTPStatusError : ", "AioRpcError : "))


@pytest.fixture(scope="module", params=["kserve", "without_kserve"])
def each_with_its_own(request, predictor, tmp_path_factory):
    """Serves transformers of which each has another predictor: one that is too slow, or one that is down."""
    folder = tmp_path_factory.mktemp("folder")
    names = []
    for protocol in PROTOCOLS:
        for name, host in ((f"slow-{protocol}", predictor[protocol]), (f"down-{protocol}", f"127.0.0.1:{free_port()}")):
            (folder / name).mkdir()
            shutil.copy(HERE / "samples" / "transformers.py", folder / name)
            extra = {"predictor_host": host, "predictor_protocol": protocol, "protocol": protocol}
            extra["predictor_request_timeout_seconds"] = 2
            text = {"name": name, "implementation": "transformers.Transformer", "parameters": {"extra": extra}}
            (folder / name / "model-settings.json").write_text(json.dumps(text))
            names.append(name)
    python = python_of(request.param, tmp_path_factory)
    with serving("ours", folder, names, python=python) as addresses:
        yield Transformers(request.param, addresses)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("model", "status"), [("slow", 504), ("down", 503)])
def test_predictor_that_does_not_answer(each_with_its_own, protocol, model, status):
    start = time.monotonic()
    found, body = each_with_its_own.pass_on(f"{model}-{protocol}", protocol, "x")
    took = time.monotonic() - start
    assert found == (status if each_with_its_own.kind == "without_kserve" else 500), body
    assert (took >= 2) if model == "slow" else (took < PATIENCE), took
    assert took < 30, took
    assert each_with_its_own.pass_on(f"{model}-{protocol}", protocol, "x")[0] == found, "the next one ends, too"
