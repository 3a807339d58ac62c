"""Models that the server fetches by `parameters.uri`."""

import contextlib
import json
import re
import threading
import urllib.error
import urllib.request

import pytest
from conftest import MODEL, PATIENCE, SECRET, free_port, pull, serving, wait_until, write_settings


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


def test_stores_that_cannot_be_reached_have_their_last_model(s3, prefix, tmp_path, refused):
    folder = tmp_path / "models"
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(folder, s3.uri(f"{prefix}/model.json"))
    cache = {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache")}
    with serving(folder, **cache, **s3.variables()) as server:
        wait_until(server.is_ready, "the model", server.process)
        expected = server.predict()
    nowhere = s3.variables(refused)
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


def test_caches_keep_the_models_in_use(s3, prefix, tmp_path):
    """Old states are removed when there are too many bytes, but never one that a server has loaded."""
    folder, cache = tmp_path / "models", tmp_path / "cache"
    model = MODEL.read_bytes()
    limit = {"MLSERVER_STORAGE_CACHE": str(cache), "MLSERVER_STORAGE_CACHE_MAX_BYTES": str(int(2.5 * len(model)))}
    write_settings(folder, s3.uri(f"{prefix}/model.json"))

    def states():
        return sorted(len(path.read_bytes()) for path in cache.rglob("model.json"))

    s3.put(f"{prefix}/model.json", model)
    with serving(folder, **limit, **s3.variables()) as server:
        wait_until(server.is_ready, "the model", server.process)
        for number in range(1, 4):
            s3.put(f"{prefix}/model.json", model + b" " * number)
            # Another server with the same cache.
            with serving(folder, **limit, **s3.variables()) as other:
                wait_until(other.is_ready, "the model", other.process)
            assert states() == [len(model), len(model) + number], number
        server.call("/v2/repository/models/iris/load", {})
        server.call("/v2/repository/models/iris/unload", {})
        s3.put(f"{prefix}/model.json", model + b" " * 4)
        server.call("/v2/repository/models/iris/load", {})
        # The first one was unloaded, and is the oldest.
        assert states() == [len(model) + 3, len(model) + 4]
        assert "Removed" in server.log.read_text()


def test_remotes_of_rclone_are_served(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(tmp_path / "models", f"minio:models/{prefix}")
    remote = {"TYPE": "s3", "ENV_AUTH": "true", "ENDPOINT": f"http://127.0.0.1:{s3.port}"}
    remote = {f"RCLONE_CONFIG_MINIO_{key}": value for key, value in remote.items()}
    cache = {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache")}
    with serving(tmp_path / "models", **cache, **s3.variables(1), **remote) as server:
        wait_until(server.is_ready, "the model", server.process)


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
