"""ModelMesh's adapter: it writes folders of models, and calls the repository API of an empty server over gRPC."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from conftest import PATIENCE, ROOT, Server
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

QUICKSTART = ROOT / "examples/quickstart"
ARTIFACTS = {
    "xgboost": (QUICKSTART / "iris-xgboost/model.json", "mlserver_xgboost.XGBoostModel"),
    "lightgbm": (next((QUICKSTART / "breast-cancer-lightgbm").glob("model.*")), "mlserver_lightgbm.LightGBMModel"),
}
#: What the runtime of MLServer in ModelMesh sets, but for the ports.
VARIABLES = {
    "MLSERVER_LOAD_MODELS_AT_STARTUP": "false",
    "MLSERVER_MODEL_NAME": "dummy-model-fixme",
    "MLSERVER_HOST": "127.0.0.1",
    "MLSERVER_GRPC_MAX_MESSAGE_LENGTH": "-1",
}


class Adapter:
    """Does what ModelMesh's adapter for MLServer does."""

    def __init__(self, channel: grpc.Channel, service: str, models: Path, downloads: Path) -> None:
        self.stub = GRPCInferenceServiceStub(channel)
        self.models = models
        self.downloads = downloads

        def call(method: str) -> Callable[..., Any]:
            request, response = (getattr(messages, f"{method}{kind}") for kind in ("Request", "Response"))
            return channel.unary_unary(f"/{service}/{method}", request.SerializeToString, response.FromString)

        self._index = call("RepositoryIndex")
        self._load = call("RepositoryModelLoad")
        self._unload = call("RepositoryModelUnload")

    def is_up(self) -> bool:
        try:
            live = self.stub.ServerLive(messages.ServerLiveRequest()).live
            return live and self.stub.ServerReady(messages.ServerReadyRequest()).ready
        except grpc.RpcError:
            return False

    def states(self) -> dict[str, str]:
        found = self._index(messages.RepositoryIndexRequest(), timeout=PATIENCE).models
        return {model.name: model.state for model in found}

    def write(self, model_id: str, kind: str) -> None:
        """Puts the artifact where the puller would, and the settings and a link to it into the model's folder."""
        artifact, implementation = ARTIFACTS[kind]
        download = self.downloads / model_id
        download.mkdir(exist_ok=True)
        shutil.copy(artifact, download)
        folder = self.models / model_id
        folder.mkdir(exist_ok=True)
        link = folder / artifact.name
        link.unlink(missing_ok=True)
        link.symlink_to(download / artifact.name)
        settings = {"name": model_id, "implementation": implementation, "parameters": {"uri": str(link)}}
        (folder / "model-settings.json").write_text(json.dumps(settings))

    def load(self, model_id: str) -> None:
        self._load(messages.RepositoryModelLoadRequest(model_name=model_id), timeout=PATIENCE)

    def unload(self, model_id: str) -> None:
        self._unload(messages.RepositoryModelUnloadRequest(model_name=model_id), timeout=PATIENCE)
        shutil.rmtree(self.models / model_id)

    def columns(self, model_id: str, columns: int) -> list[int]:
        """Asks for a prediction of zeros, and returns the shape of the first output."""
        tensor = messages.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, columns])
        tensor.contents.fp32_contents.extend(np.zeros(columns).tolist())
        request = messages.ModelInferRequest(model_name=model_id, inputs=[tensor])
        metadata = (("mm-model-id", model_id),)
        response = self.stub.ModelInfer(request, timeout=PATIENCE, metadata=metadata)
        assert response.model_name == model_id
        return list(response.outputs[0].shape)


@pytest.fixture(params=["inference.GRPCInferenceService", "inference.model_repository.ModelRepositoryService"])
def adapter(request, tmp_path) -> Iterator[Adapter]:
    models, downloads = tmp_path / "_mlserver_models", tmp_path / "downloads"
    models.mkdir()
    downloads.mkdir()
    server = Server(models, **VARIABLES, MLSERVER_MODELS_DIR=str(models))
    try:
        with grpc.insecure_channel(server.grpc) as channel:
            found = Adapter(channel, request.param, models, downloads)
            server.wait_for(found.is_up)
            yield found
    finally:
        server.stop()


def failure_of(call: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    return failure.value.code()


def test_empty_server_is_ready(adapter: Adapter) -> None:
    assert adapter.states() == {}
    assert failure_of(lambda: adapter.load("unknown")) == grpc.StatusCode.NOT_FOUND
    assert adapter.is_up()


def test_models_load_and_unload_at_the_same_time(adapter: Adapter) -> None:
    kinds = {f"model-{index}__isvc-6b2eb0b8bf": ("xgboost", "lightgbm")[index % 2] for index in range(8)}
    columns = {"xgboost": 4, "lightgbm": 30}

    def add(model_id: str) -> list[int]:
        adapter.write(model_id, kinds[model_id])
        adapter.load(model_id)
        return adapter.columns(model_id, columns[kinds[model_id]])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(add, kinds)) == [[1, 1]] * len(kinds)
        assert adapter.states() == dict.fromkeys(kinds, "READY")
        gone, kept = list(kinds)[:5], list(kinds)[5:]
        list(pool.map(adapter.unload, gone))
    assert adapter.states() == dict.fromkeys(kept, "READY")
    for model_id in gone:
        assert failure_of(lambda model_id=model_id: adapter.columns(model_id, 4)) == grpc.StatusCode.NOT_FOUND
    for model_id in kept:
        adapter.columns(model_id, columns[kinds[model_id]])


def test_model_that_cannot_be_loaded_leaves_the_others(adapter: Adapter) -> None:
    adapter.write("good", "xgboost")
    adapter.load("good")
    adapter.write("bad", "xgboost")
    (adapter.downloads / "bad/model.json").write_text("{}")
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(failure_of, lambda: adapter.load("bad"))
        assert pool.submit(adapter.columns, "good", 4).result() == [1, 1]
        assert failing.result() not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
    assert adapter.states()["good"] == "READY"
    assert failure_of(lambda: adapter.columns("bad", 4)) != grpc.StatusCode.OK
    # The adapter unloads a model that it could not load, and takes this answer as success.
    assert failure_of(lambda: adapter.unload("bad")) == grpc.StatusCode.NOT_FOUND
    shutil.rmtree(adapter.models / "bad")
    assert adapter.states() == {"good": "READY"}
    # A model of this id may come again.
    adapter.write("bad", "xgboost")
    adapter.load("bad")
    assert adapter.columns("bad", 4) == [1, 1]
    assert adapter.is_up()


def test_model_is_loaded_again_with_another_artifact(adapter: Adapter) -> None:
    adapter.write("m", "xgboost")
    adapter.load("m")
    assert failure_of(lambda: adapter.columns("m", 30)) == grpc.StatusCode.INVALID_ARGUMENT
    (adapter.models / "m/model.json").unlink()
    adapter.write("m", "lightgbm")
    adapter.load("m")
    assert adapter.columns("m", 30) == [1, 1]
    # A new adapter unloads everything that is loaded before it begins.
    for model_id in adapter.states():
        adapter.unload(model_id)
    assert adapter.states() == {}
