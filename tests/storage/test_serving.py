"""Models that the server fetches by `parameters.uri`."""

import contextlib
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request

import pytest
from conftest import BINARY, PATIENCE, ROOT, SECRET, environment, free_port, pull, wait_until

MODEL = ROOT / "examples/quickstart/iris-xgboost/model.json"


@contextlib.contextmanager
def serving(target, logs=None, **variables):
    """Runs a server, whose log is in the folder `logs`: the parent of its folder of models, unless given."""
    port = free_port()
    ports = {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": "0"}
    variables = environment(**{**ports, "MLSERVER_METRICS_ENDPOINT": "", **variables})
    log = (logs or target.parent) / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([BINARY, "start", target], env=variables, stdout=out, stderr=out)
    try:
        yield Server(port, process, log)
    finally:
        process.terminate()
        process.wait()
        assert SECRET not in log.read_text()


class Server:
    def __init__(self, port, process, log):
        self.url, self.process, self.log = f"http://127.0.0.1:{port}", process, log

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def is_ready(self):
        with contextlib.suppress(OSError):
            self.call("/v2/models/iris/ready")
            return True
        return False

    def predict(self):
        tensor = {"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}
        return self.call("/v2/models/iris/infer", {"inputs": [tensor]})["outputs"][0]["data"]


def write_settings(folder, uri, implementation="mlserver_xgboost.XGBoostModel"):
    folder.mkdir(exist_ok=True)
    settings = {"name": "iris", "implementation": implementation, "parameters": {"uri": uri}}
    (folder / "model-settings.json").write_text(json.dumps(settings))


def test_models_are_fetched_once_and_again_after_a_change(s3, proxy, prefix, tmp_path):
    folder, cache = tmp_path / "models", tmp_path / "cache"
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(folder, s3.uri(prefix))
    variables = {"MLSERVER_STORAGE_CACHE": str(cache), **s3.variables(proxy.port)}
    with serving(folder, **variables) as server:
        wait_until(server.is_ready, "the model", server.process)
        first = server.predict()
        assert len(proxy.requests) == 1
        # The same state needs no byte.
        server.call("/v2/repository/models/iris/load", {})
        assert len(proxy.requests) == 1
        model = json.loads(MODEL.read_bytes())
        # Each class becomes the next one.
        trees = model["learner"]["gradient_booster"]["model"]
        trees["tree_info"] = [(label + 1) % 3 for label in trees["tree_info"]]
        s3.put(f"{prefix}/model.json", json.dumps(model).encode())
        server.call("/v2/repository/models/iris/load", {})
        assert len(proxy.requests) == 2
        assert server.predict() == [(first[0] + 1) % 3]
    with serving(folder, **variables) as server:
        wait_until(server.is_ready, "the model", server.process)
        assert len(proxy.requests) == 2
    assert SECRET not in "".join(map(str, cache.rglob("*")))


def test_stores_that_cannot_be_reached_have_their_last_model(s3, prefix, tmp_path):
    folder = tmp_path / "models"
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(folder, s3.uri(f"{prefix}/model.json"))
    cache = {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache")}
    with serving(folder, **cache, **s3.variables()) as server:
        wait_until(server.is_ready, "the model", server.process)
        expected = server.predict()
    nowhere = s3.variables(free_port())
    with serving(folder, **cache, **nowhere) as server:
        wait_until(server.is_ready, "the model", server.process)
        assert server.predict() == expected
        assert "cannot be reached; the model of the last fetch is used" in server.log.read_text()
        # A load asks for the present state.
        with pytest.raises(urllib.error.HTTPError) as failure:
            server.call("/v2/repository/models/iris/load", {})
        assert "cannot connect to 127.0.0.1" in failure.value.read().decode()
        assert server.predict() == expected
    with serving(folder, MLSERVER_STORAGE_OFFLINE="fail", **cache, **nowhere) as server:
        assert server.process.wait(PATIENCE) == 1
        assert re.search("cannot connect to 127.0.0.1.*connection refused", server.log.read_text())


def test_missing_models_say_what_is_there(s3, prefix, tmp_path):
    folder = tmp_path / "models"
    s3.put(f"{prefix}/model.json", b"{}")
    write_settings(folder, s3.uri(f"{prefix}/modle.json"))
    with serving(folder, MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **s3.variables()) as server:
        assert server.process.wait(PATIENCE) == 1
        assert f"no object has the key `{prefix}/modle.json`" in server.log.read_text()
        assert "the bucket has model.json" in server.log.read_text()


def test_classes_of_users_get_their_uri(s3, prefix, tmp_path):
    """The original passes it on, too, and models read it themselves."""
    folder = tmp_path / "models"
    write_settings(folder, s3.uri(prefix), "model.Uri")
    (folder / "model.py").write_text(
        "from mlserver import MLModel\n"
        "from mlserver.codecs import StringCodec\n"
        "from mlserver.types import InferenceResponse\n\n\n"
        "class Uri(MLModel):\n"
        "    async def predict(self, payload):\n"
        "        uri = StringCodec.encode_output('uri', [self.settings.parameters.uri])\n"
        "        return InferenceResponse(model_name=self.name, outputs=[uri])\n"
    )
    with serving(folder, **s3.variables()) as server:
        wait_until(server.is_ready, "the model", server.process)
        assert server.predict() == [s3.uri(prefix)]


def test_pulled_folders_are_served(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    pull(s3.uri(prefix), tmp_path / "models", **s3.variables())
    with serving(tmp_path / "models", MLSERVER_MODEL_NAME="iris") as server:
        wait_until(lambda: "running on" in server.log.read_text(), "the server", server.process)


def test_fetches_are_in_the_index_and_the_metrics(s3, proxy, prefix, tmp_path):
    folder, metrics = tmp_path / "models", free_port()
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(folder, s3.uri(prefix))
    released = threading.Event()
    proxy.faults = lambda _path, _number: released.wait(PATIENCE) and None
    ports = {"MLSERVER_METRICS_PORT": str(metrics), "MLSERVER_METRICS_ENDPOINT": "/metrics"}
    with serving(folder, MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **ports, **s3.variables(proxy.port)) as server:

        def reason():
            with contextlib.suppress(OSError):
                entry = server.call("/v2/repository/index", {})[0]
                return entry["state"] == "LOADING" and entry["reason"]

        size = len(MODEL.read_bytes())
        assert wait_until(reason, "the progress") == f"downloading 0.0 of {size // 100 / 10:.1f} kB"
        released.set()
        wait_until(server.is_ready, "the model", server.process)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        assert f'model_download_bytes_total{{model="iris"}} {size}' in text
        assert 'model_download_seconds{model="iris"} ' in text
