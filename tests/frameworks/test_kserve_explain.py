"""KServe's `:explain` with an explainer of alibi, for a model that the server evaluates itself."""

import json
import sys

import pytest
from support import free_port, need, serve, suite

suite("alibi_explain")

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
SETOSA, VIRGINICA = [5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serves a classifier of scikit-learn without Python, and its explainer, which asks the same server."""
    need("alibi_explain")
    import joblib
    from alibi.explainers import AnchorTabular
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    folder = tmp_path_factory.mktemp("models")
    port = free_port()
    rows, classes = load_iris(return_X_y=True)
    model = RandomForestClassifier(n_estimators=10, random_state=1).fit(rows, classes)

    def write(name, implementation, uri, **extra):
        (folder / name).mkdir(exist_ok=True)
        settings = {"name": name, "implementation": implementation, "parameters": {"uri": uri, "extra": extra}}
        (folder / name / "model-settings.json").write_text(json.dumps(settings))

    for name, explainer in (("flowers", "why"), ("misled", "nope")):
        write(name, "mlserver_sklearn.SKLearnModel", "./model.joblib", explainer=explainer)
        joblib.dump(model, folder / name / "model.joblib")
    anchors = AnchorTabular(model.predict, NAMES, seed=1)
    anchors.fit(rows)
    uri = f"http://127.0.0.1:{port}/v2/models/flowers/infer"
    write(
        "why",
        "mlserver_alibi_explain.AlibiExplainRuntime",
        "./explainer",
        infer_uri=uri,
        explainer_type="anchor_tabular",
    )
    anchors.save(folder / "why" / "explainer")

    started = serve(folder, sys.executable, MLSERVER_HTTP_PORT=str(port))
    try:
        yield started.wait_until_ready()
    finally:
        started.stop()


def explain(server, instances, model="flowers"):
    return server.post(f"/v1/models/{model}:explain", {"instances": instances})


def test_explanation_agrees_with_prediction(server):
    predicted = server.post("/v1/models/flowers:predict", {"instances": [SETOSA, VIRGINICA]})
    assert predicted.json() == {"predictions": [0, 2]}
    for flower, expected in ((SETOSA, 0), (VIRGINICA, 2)):
        answer = explain(server, [flower])
        assert (answer.status, answer.headers.get_content_type()) == (200, "application/json"), answer.body
        found = answer.json()
        assert (found["meta"]["name"], found["meta"]["type"]) == ("AnchorTabular", ["blackbox"])
        data = found["data"]
        assert data["raw"]["instance"] == flower
        assert data["raw"]["prediction"] == [expected]
        assert data["precision"] >= found["meta"]["params"]["threshold"] == 0.95
        assert data["anchor"], "no condition explains the prediction"
        assert all(any(name in condition for name in NAMES) for condition in data["anchor"]), data["anchor"]


def test_petals_explain_setosa(server):
    conditions = explain(server, [SETOSA]).json()["data"]["anchor"]
    assert any(condition.startswith(("petal length <= 1", "petal width <= 0")) for condition in conditions), conditions


def test_explanation_of_a_table_and_over_v2_are_the_same(server):
    expected = explain(server, [SETOSA]).json()["data"]
    table = explain(server, [dict(zip(NAMES, SETOSA))])
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, 4], "data": SETOSA}
    over_v2 = server.post("/v2/models/why/infer", {"inputs": [tensor]})
    (output,) = over_v2.json()["outputs"]
    for found in (table.json()["data"], json.loads(output["data"][0])["data"]):
        assert found["raw"]["instance"] == SETOSA
        assert found["raw"]["prediction"] == expected["raw"]["prediction"]
    itself = explain(server, [SETOSA], "why")
    assert itself.json()["meta"]["name"] == "AnchorTabular", "the explainer answers under its own name, too"


def test_cloud_event_is_explained(server):
    headers = {f"ce-{name}": name for name in ("id", "source", "type")}
    headers = {"content-type": "application/json", "ce-specversion": "1.0", **headers}
    body = json.dumps({"instances": [SETOSA]}).encode()
    answer = server.request("POST", "/v1/models/flowers:explain", body, headers)
    assert answer.status == 200, answer.body
    assert answer.json()["meta"]["name"] == "AnchorTabular"
    assert answer.headers["ce-source"] == "io.kserve.inference.flowers"
    assert answer.headers["ce-id"] not in (None, "id")


@pytest.mark.parametrize(
    "instances", [[[1.0, 2.0]], [["a", "b", "c", "d"]], [], [[5.1, 3.5, 1.4, 0.2], [1.0]]], ids=str
)
def test_invalid_instances_are_400(server, instances):
    answer = explain(server, instances)
    assert answer.status == 400, answer.body
    assert list(answer.json()) == ["error"]
    assert server.get("/v2/health/ready").status == 200


def test_missing_explainer_is_named(server):
    answer = explain(server, [SETOSA], "misled")
    assert (answer.status, "nope" in answer.json()["error"]) == (404, True), answer.body
