"""Repositories of models in stores: `mlserver start s3://…`."""

import json
import urllib.error

import pytest
from conftest import AZURITE_KEY, PATIENCE, ROOT, SECRET, wait_until
from test_serving import MODEL, serving

PYTHON_MODEL = (
    "from helper import ANSWER\n"
    "from mlserver import MLModel\n"
    "from mlserver.codecs import StringCodec\n"
    "from mlserver.types import InferenceResponse\n\n\n"
    "class Model(MLModel):\n"
    "    async def predict(self, payload):\n"
    "        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output('a', [ANSWER])])\n"
)


def settings(name, implementation="mlserver_xgboost.XGBoostModel", **parameters):
    return json.dumps({"name": name, "implementation": implementation, "parameters": parameters}).encode()


def write_model(folder, name="iris"):
    """Writes a folder with a model on disk."""
    folder.mkdir(parents=True)
    (folder / "model-settings.json").write_bytes(settings(name, uri="./model.json"))
    (folder / "model.json").write_bytes(MODEL.read_bytes())


def fill(store, prefix):
    """Puts models of all kinds below the prefix."""
    model = MODEL.read_bytes()
    store.put(f"{prefix}/iris/model-settings.json", settings("iris", uri="./model.json"))
    store.put(f"{prefix}/iris/model.json", model)
    store.put(f"{prefix}/shared/trees/iris.json", model)
    store.put(f"{prefix}/second/model-settings.json", settings("second", uri="../shared/trees/iris.json"))
    store.put(f"{prefix}/plain/model.json", model)
    store.put(f"{prefix}/code/model-settings.json", settings("code", "model.Model"))
    store.put(f"{prefix}/code/model.py", PYTHON_MODEL.encode())
    store.put(f"{prefix}/code/helper.py", b"ANSWER = 'from the store'\n")
    store.put(f"{prefix}/settings.json", json.dumps({"http_port": 1, "api_keys_file": "keys", "debug": 7}).encode())


def states(server):
    return {entry["name"]: entry["state"] for entry in server.call("/v2/repository/index", {})}


def ready(server, *names):
    wait_until(
        lambda: all(states_of(server).get(name) == "READY" for name in names), f"the models {names}", server.process
    )


def states_of(server):
    try:
        return states(server)
    except OSError:
        return {}


def predict(server, name):
    tensor = {"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}
    return server.call(f"/v2/models/{name}/infer", {"inputs": [tensor]})["outputs"][0]["data"]


def test_repositories_are_served_from_stores(store, prefix, tmp_path, cache):
    fill(store, prefix)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    variables = {**store.variables(), **cache, "TMPDIR": str(temporary)}
    with serving(store.uri(prefix), tmp_path, **variables) as server:
        ready(server, "iris", "second", "code")
        assert predict(server, "iris") == predict(server, "second")
        assert predict(server, "code") == ["from the store"]
        # A model file alone, as on disk.
        server.call("/v2/repository/models/plain/load", {})
        assert predict(server, "plain") == predict(server, "iris")
        index = json.dumps(server.call("/v2/repository/index", {}))
        for secret in (SECRET, AZURITE_KEY):
            assert secret not in index and secret not in server.log.read_text()
        # Operator keys of the bucket have no effect.
        assert "`settings.json` in `" in server.log.read_text()
    assert not list(temporary.glob("mlserver-*"))
    assert SECRET not in "".join(map(str, (tmp_path / "cache").rglob("*")))


def test_graphs_and_their_models_are_served_from_stores(s3, prefix, tmp_path, cache):
    graph = ROOT / "examples/graph-ensemble"
    folders = ["ensemble", "joined", "benign", "verdict", "xgboost-tumor", "lightgbm-tumor", "sklearn-tumor"]
    for path in graph.rglob("*"):
        if path.is_file() and path.parent.name in folders:
            s3.put(f"{prefix}/{path.relative_to(graph)}", path.read_bytes())
    with serving(s3.uri(prefix), tmp_path, **s3.variables(), **cache) as server:
        ready(server, "ensemble")
        answer = server.call("/v2/models/ensemble/infer", json.loads((graph / "request.json").read_text()))
        expected = json.loads((graph / "answer.json").read_text())
        assert [(output["name"], output["shape"]) for output in answer["outputs"]] == [
            (output["name"], output["shape"]) for output in expected["outputs"]
        ]
        for output, other in zip(answer["outputs"], expected["outputs"], strict=True):
            assert output["data"] == pytest.approx(other["data"])


def test_file_uris_are_folders_of_this_machine(tmp_path, cache):
    write_model(tmp_path / "models" / "iris")
    with serving(f"file://{tmp_path}/models", tmp_path, **cache) as server:
        ready(server, "iris")
        assert len(predict(server, "iris")) == 1


def test_indexes_list_the_store_again(s3, prefix, tmp_path, cache):
    fill(s3, prefix)
    with serving(s3.uri(prefix), tmp_path, **s3.variables(), **cache) as server:
        ready(server, "iris", "second", "code")
        s3.put(f"{prefix}/new/model-settings.json", settings("new", uri="model.json"))
        s3.put(f"{prefix}/new/model.json", MODEL.read_bytes())
        # At most every 10 s.
        wait_until(lambda: "new" in states(server), "the new model in the index")
        assert states(server)["new"] == "UNAVAILABLE"
        server.call("/v2/repository/models/new/load", {})
        assert predict(server, "new") == predict(server, "iris")
        for name in ("model-settings.json", "model.json"):
            s3.client.delete_object(Bucket=s3.bucket, Key=f"{prefix}/new/{name}")
        # A load looks at once, and what is loaded serves on.
        with pytest.raises(urllib.error.HTTPError):
            server.call("/v2/repository/models/new/load", {})
        assert predict(server, "new") == predict(server, "iris")
        server.call("/v2/repository/models/new/unload", {})
        assert "new" not in states(server)


def test_models_of_repositories_change_by_a_load(s3, prefix, tmp_path, cache):
    fill(s3, prefix)
    with serving(s3.uri(prefix), tmp_path, **s3.variables(), **cache) as server:
        ready(server, "code")
        s3.put(f"{prefix}/code/helper.py", b"ANSWER = 'another'\n")
        server.call("/v2/repository/models/code/load", {})
        assert predict(server, "code") == ["another"]


def test_stores_that_cannot_be_reached_start_with_their_last_models(s3, prefix, tmp_path, cache, refused):
    fill(s3, prefix)
    with serving(s3.uri(prefix), tmp_path, **s3.variables(), **cache) as server:
        ready(server, "iris", "second", "code")
    nowhere = s3.variables(refused)
    with serving(s3.uri(prefix), tmp_path, **nowhere, **cache) as server:
        ready(server, "iris", "second", "code")
        assert "its last known models are used" in server.log.read_text()
        assert predict(server, "iris") == predict(server, "second")
    with serving(s3.uri(prefix), tmp_path, MLSERVER_STORAGE_OFFLINE="fail", **nowhere, **cache) as server:
        assert server.process.wait(PATIENCE) == 1
        assert "cannot connect to 127.0.0.1" in server.log.read_text()


def test_empty_and_wrong_repositories_say_so(s3, prefix, tmp_path, cache):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    s3.put(f"{prefix}/out/model-settings.json", settings("out", uri="../../../etc/passwd"))
    for key, expected in [
        (f"{prefix}/none", f"no model found in `s3://models/{prefix}/none`"),
        (f"{prefix}/model.json", "it is one file: pass a folder of models"),
        (f"{prefix}/out", "leads out of the repository"),
    ]:
        with serving(s3.uri(key), tmp_path, **s3.variables(), **cache) as server:
            assert server.process.wait(PATIENCE) == 1
            assert expected in server.log.read_text()


def test_models_of_one_bucket_share_their_connections(s3, proxy, prefix, tmp_path, cache):
    names = [f"model-{number}" for number in range(50)]
    for name in names:
        s3.put(f"{prefix}/{name}/model-settings.json", settings(name, uri="./model.json"))
        s3.put(f"{prefix}/{name}/model.json", MODEL.read_bytes())
    with serving(s3.uri(prefix), tmp_path, **s3.variables(proxy.port), **cache) as server:
        ready(server, *names)
        # The settings files, and both files of each folder.
        assert len(proxy.requests) == 150
        # As many as files and lists at once.
        assert proxy.connections <= 20
