"""The samples of KServe's documentation, run by this server and KServe's: the same script, requests and answers."""

import asyncio
import base64
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from PIL import Image
from support import PATIENCE, answer, both, python_of, serving

SAMPLES = Path(__file__).resolve().parent / "samples"
NAMES = ["alexnet", "other", "frames", "headers", "tensors"]


@pytest.fixture(scope="module", params=["kserve", "without_kserve"])
def servers(request, tmp_path_factory):
    """Runs the script with several models, on both servers."""
    python = python_of(request.param, tmp_path_factory)
    folder = tmp_path_factory.mktemp("samples") / "samples"
    shutil.copytree(SAMPLES, folder)
    script = folder / "several.py"
    own = serving("ours", script, NAMES, "--alias", "other", python=python)
    with own as first, serving("kserve", script, NAMES, "--alias", "other") as second:
        yield [first, second]


def picture(seed, form="PNG"):
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, form)
    return content.getvalue()


def instances(*contents):
    return {"instances": [{"image": {"b64": base64.b64encode(content).decode()}} for content in contents]}


def same(servers, path, body, status=200, **headers):
    """Returns the body of both answers, which must be equal."""
    ours, theirs = both(servers, path, body, **headers)
    assert ours[0] == theirs[0] == status, (ours, theirs)
    assert ours[1] == theirs[1]
    return ours[1]


def v2_answer(servers, path, body):
    """Returns the answer of both servers over V2. KServe writes fields without a value as null."""
    found = both(servers, path, body)
    assert [status for status, _ in found] == [200, 200], found

    def present(value):
        if isinstance(value, dict):
            return {name: present(item) for name, item in value.items() if item is not None}
        return [present(item) for item in value] if isinstance(value, list) else value

    ours, theirs = (present(text) for _, text in found)
    assert ours.pop("parameters", {}) == theirs.pop("parameters", {})
    for output, other in zip(ours["outputs"], theirs["outputs"]):
        assert output.pop("parameters", {}) == other.pop("parameters", {})
    assert ours == theirs
    return ours


def test_all_models_of_the_script_are_ready(servers):
    for name in NAMES:
        assert same(servers, f"/v1/models/{name}", None) == {"name": name, "ready": True}
    ours, theirs = both(servers, "/v1/models")
    assert sorted(ours[1]["models"]) == sorted(theirs[1]["models"]) == sorted(NAMES)


@pytest.mark.parametrize("model", ["alexnet", "other"])
def test_image_is_classified(servers, model):
    found = same(servers, f"/v1/models/{model}:predict", instances(picture(1)))
    (best,) = found["predictions"]
    assert len(best) == 5
    assert sum(probability for _, probability in best) <= 1
    two = same(servers, f"/v1/models/{model}:predict", instances(picture(1), picture(2, "BMP")))
    # The sums of several rows are rounded differently.
    assert two["predictions"][0] == [pytest.approx(pair) for pair in best]
    assert two["predictions"][1] != two["predictions"][0]


def test_image_as_a_cloud_event_is_classified(servers):
    expected = same(servers, "/v1/models/alexnet:predict", instances(picture(3)))
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": "2026-01-01T00:00:00Z"}
    event["data"] = instances(picture(3))
    for base, _ in servers:
        status, headers, text = answer(
            base, "/v1/models/alexnet:predict", event, content_type="application/cloudevents+json"
        )
        assert (status, headers["content-type"]) == (200, "application/cloudevents+json")
        assert json.loads(text)["data"] == expected


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"instances": [{"image": {}}]}, 500),
        ({"instances": [{"image": {"b64": "a"}}]}, 500),
        ({"instances": [3]}, 500),
        ({"instances": 3}, 400),
        ({}, 500),
    ],
)
def test_mistakes_in_images_have_the_same_answers(servers, body, status):
    same(servers, "/v1/models/alexnet:predict", body, status)


def test_damaged_image_fails_with_the_same_exception(servers):
    ours, theirs = both(servers, "/v1/models/alexnet:predict", instances(picture(1)[:40]))
    assert ours[0] == theirs[0] == 500
    # The message has the address of an object.
    assert ours[1]["error"].partition(" : ")[0] == theirs[1]["error"].partition(" : ")[0]


def test_raw_image_over_v2_and_grpc_is_classified(servers):
    expected = same(servers, "/v1/models/alexnet:predict", instances(picture(4)))["predictions"][0]
    tensor = InferInput("image", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([picture(4)], dtype=object), binary_data=True)
    request = InferRequest("alexnet", [tensor], request_id="4")

    async def ask(base, address):
        grpc = InferenceGRPCClient(address, timeout=PATIENCE)
        try:
            found = [await grpc.infer(request)]
        finally:
            await grpc.close()
        # KServe's server answers bytes that are not text with 500 over REST.
        if base == servers[0][0]:
            rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=1, timeout=PATIENCE))
            found.append(await rest.infer(base, request, model_name="alexnet"))
        return found

    found = [response for server in servers for response in asyncio.run(ask(*server))]
    assert len(found) == 3
    for response in found:
        (output,) = response.outputs
        assert (response.id, output.name, output.datatype, list(output.shape)) == ("4", "output-0", "FP64", [1, 10])
        (row,) = output.as_numpy().tolist()
        assert [row[label] for label, _ in expected] == [probability for _, probability in expected]


@pytest.mark.parametrize(
    "rows",
    [
        [[2.0, 3.5], [4, 4]],
        [[1, 1]],
        [{"length": [2.0, 4.0], "width": [3.5, 4.0]}],
    ],
    ids=str,
)
def test_frame_over_v1_is_the_same(servers, rows):
    found = same(servers, "/v1/models/frames:predict", {"instances": rows})
    assert found["predictions"][0]["area"] == (7.0 if rows != [[1, 1]] else 1.0)


def test_frame_over_v2_is_the_same(servers):
    columns = [
        {"name": "length", "shape": [3], "datatype": "FP64", "data": [2.0, 4.0, 1.5]},
        {"name": "width", "shape": [3], "datatype": "INT64", "data": [3, 4, 2]},
    ]
    body = {"id": "7", "parameters": {"content_type": "pd"}, "inputs": columns}
    found = v2_answer(servers, "/v2/models/frames/infer", body)
    assert {output["name"]: output["data"] for output in found["outputs"]} == {
        "area": [6.0, 16.0, 3.0],
        "is_square": [0, 1, 0],
    }


def test_tensors_have_the_same_metadata(servers):
    for base, _ in servers:
        found = json.loads(answer(base, "/v2/models/tensors")[2])
        assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        assert found["outputs"] == [{"name": "norm", "datatype": "FP32", "shape": [-1]}]


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT32"])
def test_tensors_are_the_same(servers, datatype):
    tensor = {"name": "x", "shape": [2, 2], "datatype": datatype, "data": [3, 4, 6, 8]}
    other = {"name": "y", "shape": [1], "datatype": "BOOL", "data": [True]}
    found = v2_answer(servers, "/v2/models/tensors/infer", {"id": "t", "inputs": [other, tensor]})
    assert [output["data"] for output in found["outputs"]] == [[5.0, 10.0], ["near", "far"]]


def test_tensors_reject_the_same_requests(servers):
    wrong = {"id": "t", "inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [3, 4]}]}
    found = same(servers, "/v2/models/tensors/infer", wrong, 400)
    assert found == {"error": "expected pairs, got [2]"}
    same(servers, "/v1/models/tensors:predict", {"instances": [[3, 4]]}, 400)


def test_headers_are_read_and_set(servers):
    names = ["x-one", "authorization", "x-none", "content-type"]
    found = [
        answer(base, "/v1/models/headers:predict", {"instances": names}, x_one="1", authorization="Bearer t")
        for base, _ in servers
    ]
    for status, headers, text in found:
        assert status == 200
        assert json.loads(text) == {"predictions": ["1", "Bearer t", None, "application/json"]}
        assert {name: headers[name] for name in ("x-model", "x-count", "x-steps")} == {
            "x-model": "headers",
            "x-count": "4",
            "x-steps": "all",
        }
