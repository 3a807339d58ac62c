"""Explainers of alibi: behavior that the goldens do not cover."""

import json
import re
import shutil
import sys

from blackbox import serving
from support import golden_models, need, reasons, run_example, serve, settings, suite

suite("alibi_explain")

from alibi_explain_cases import FLOWERS, IMPLEMENTATION, ONE, TWO

MODELS = golden_models("alibi_explain")
PIXELS = {"name": "x", "datatype": "FP32", "shape": [1, 4, 4, 1], "data": [float(number) for number in range(16)]}


def explanation(answer):
    assert answer.status == 200, answer.body
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("explanation", [1, 1], "BYTES")
    return json.loads(output["data"][0])


def ask(server, model, tensor, **arguments):
    body = {"inputs": [tensor]}
    if arguments:
        body["parameters"] = {"explain_parameters": arguments}
    return server.post(f"/v2/models/{model}/infer", body)


def test_anchors_explain_the_model_rule(tmp_path):
    """The model, which is called over HTTP, predicts `setosa` for flowers whose third number is below 2.5."""
    need("alibi_explain")
    shutil.copytree(MODELS / "anchors", tmp_path / "anchors")
    with serving(tmp_path) as asked:
        server = serve(tmp_path, sys.executable)
        try:
            server.wait_until_ready()
            answer = ask(server, "anchors", ONE, threshold=0.9)
            found = explanation(answer)
            assert found["meta"]["name"] == "AnchorTabular"
            assert found["meta"]["params"]["threshold"] == 0.9
            assert any(condition.startswith("c <= ") for condition in found["data"]["anchor"]), found["data"]["anchor"]
            assert found["data"]["precision"] >= 0.9
            assert answer.headers["x-seldon-alibi-type"] == "explanation"
            assert answer.headers["x-seldon-alibi-method"] == "anchor_tabular"
            # The custom route answers with only the explanation.
            alone = server.post("/explain", {"inputs": [TWO]})
            assert (alone.status, alone.headers.get_content_type()) == (200, "application/json")
            assert alone.json()["meta"]["name"] == "AnchorTabular"
        finally:
            server.stop()
    assert all(call["headers"]["Seldon-Skip-Logging"] == "true" for call in asked)
    ids = {call["body"]["id"] for call in asked}
    # Each of two explanations predicts the row, and a random number of samples.
    assert len(ids) == len(asked) >= 4
    assert asked[0]["body"]["inputs"][0]["name"] == "x", "the name that the model's metadata have"


def test_explainer_is_built_from_its_arguments(tmp_path):
    need("alibi_explain")
    picture = {"image_shape": [4, 4, 1], "segmentation_fn": "slic", "segmentation_kwargs": {"n_segments": 2}}
    extra = {"infer_uri": FLOWERS, "explainer_type": "anchor_image", "init_parameters": {**picture, "seed": 1}}
    settings(tmp_path / "picture", IMPLEMENTATION, **extra)
    settings(tmp_path / "wrong", IMPLEMENTATION, **{**extra, "init_parameters": {"nonsense": 1}})
    with serving(tmp_path):
        server = serve(tmp_path, sys.executable, MLSERVER_EXIT_ON_LOAD_FAILURE="false")
        try:
            server.wait_for(lambda: server.get("/v2/models/picture/ready").status == 200)
            found = explanation(ask(server, "picture", PIXELS, batch_size=5, coverage_samples=50))
            assert found["meta"]["name"] == "AnchorImage"
            assert found["meta"]["params"]["custom_segmentation"] is False
        finally:
            server.stop()


def test_unreachable_model_is_reported(tmp_path):
    need("alibi_explain")
    shutil.copytree(MODELS / "shap", tmp_path / "shap")
    with serving(tmp_path):
        server = serve(tmp_path, sys.executable)
        try:
            server.wait_until_ready()
            path = tmp_path / "shap/model-settings.json"
            address = re.search(r"http://[^/]*", path.read_text())[0]
            assert explanation(ask(server, "shap", ONE))["meta"]["name"] == "KernelShap"
        except BaseException:
            server.stop()
            raise
    try:
        answer = ask(server, "shap", ONE)
        assert answer.status == 400
        assert answer.json()["error"].startswith(f"Remote inference call failed: {address}/v2/models/flowers/infer: ")
    finally:
        server.stop()


def test_failed_load_reports_the_reason(tmp_path):
    need("alibi_explain")
    settings(tmp_path / "untold", IMPLEMENTATION)
    settings(tmp_path / "unknown", IMPLEMENTATION, infer_uri=FLOWERS, explainer_type="magic")
    settings(tmp_path / "modelless", IMPLEMENTATION, infer_uri="./nope.joblib", explainer_type="tree_shap")
    settings(tmp_path / "empty", IMPLEMENTATION, infer_uri=FLOWERS, explainer_type="anchor_tabular")
    settings(tmp_path / "missing", IMPLEMENTATION, "./nope", infer_uri=FLOWERS, explainer_type="anchor_tabular")
    with serving(tmp_path):
        found = reasons(tmp_path, sys.executable)
    assert found["untold"].startswith(
        "invalid `parameters.extra`: `infer_uri`: Field required; `explainer_type`: Field"
    )
    assert found["unknown"].startswith("`parameters.extra.explainer_type` is `magic`, expected one of anchor_image, ")
    assert found["modelless"] == f"`parameters.extra.infer_uri`: `{tmp_path}/modelless/nope.joblib` does not exist"
    assert found["empty"].startswith(f"cannot load `{tmp_path}/empty`: ")
    assert found["missing"] == f"Invalid URI specified for model missing ({tmp_path}/missing/nope)"


def test_example_readme_commands_work(tmp_path):
    need("alibi_explain")
    run_example(tmp_path, "alibi-explain")
