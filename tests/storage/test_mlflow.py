"""Models of MLflow's registry, from a real MLflow server: with its own artifacts, and with artifacts in S3 (moto)."""

import os
import sqlite3
import subprocess
import sys
import urllib.request

import mlflow
import pytest
from conftest import PATIENCE, ROOT, SECRET, Proxy, content, free_port, listens, pull, wait_until
from mlflow import MlflowClient
from test_serving import serving, write_settings

MODEL = ROOT / "examples/quickstart/iris-xgboost/model.json"
NAMES = ["MLmodel", "model.json", "code/a b+c.py", "code/d.txt", "empty"]


class Server:
    """An MLflow server with a client, and a registered model of two versions."""

    def __init__(self, folder, *options, **variables):
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = {"MLFLOW_TRACKING_URI": self.url, **variables}
        store = ["--backend-store-uri", f"sqlite:///{folder}/db", "--workers", "1"]
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), *store, *options]
        self.log = (folder / "log").open("wb")
        # MLflow starts workers, which end with it only as a group.
        variables = {**os.environ, **variables, "MLFLOW_DISABLE_TELEMETRY": "true"}
        self.process = subprocess.Popen(command, env=variables, stdout=self.log, stderr=self.log, start_new_session=True)
        wait_until(lambda: listens(self.port) and self.is_healthy(), "the MLflow server", self.process)
        self.client = MlflowClient(self.url, self.url)

    def is_healthy(self):
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200
        except OSError:
            return False

    def log_model(self, name, files):
        """Logs files as the artifacts of a new run, and registers them. Returns the id of the run."""
        run = self.client.create_run("0").info.run_id
        folder = self.folder / run
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        self.client.log_artifacts(run, folder, "model")
        self.client.create_model_version(name, f"{self.client.get_run(run).info.artifact_uri}/model", run)
        return run

    def stop(self):
        os.killpg(self.process.pid, 15)
        self.process.wait(PATIENCE)
        self.log.close()


def files_of(version):
    files = {name: f"{name} of {version}".encode() for name in NAMES}
    return {**files, "model.json": MODEL.read_bytes(), "empty": b"", "MLmodel": f"model_uuid: {version}\n".encode()}


def with_model(server, monkeypatch_of):
    for name, value in server.variables.items():
        monkeypatch_of.setenv(name, value)
    server.client.create_registered_model("iris model")
    server.runs = [server.log_model("iris model", files_of(version)) for version in (1, 2)]
    server.client.set_registered_model_alias("iris model", "champion", "1")
    server.client.transition_model_version_stage("iris model", "1", "Production")
    return server


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def proxied(tmp_path_factory, patch):
    folder = tmp_path_factory.mktemp("mlflow")
    server = Server(folder, "--artifacts-destination", str(folder / "artifacts"))
    try:
        yield with_model(server, patch)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def in_s3(tmp_path_factory, s3, patch):
    keys = s3.variables()
    keys["MLFLOW_S3_ENDPOINT_URL"] = keys["AWS_ENDPOINT_URL"]
    options = ["--no-serve-artifacts", "--default-artifact-root", s3.uri("mlflow")]
    server = Server(tmp_path_factory.mktemp("mlflow-s3"), *options, **keys)
    try:
        yield with_model(server, patch)
    finally:
        server.stop()


@pytest.fixture(params=["proxied", "in_s3"])
def server(request):
    return request.getfixturevalue(request.param)


def downloaded(server, uri, folder, monkeypatch):
    """Returns what MLflow's own client downloads."""
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    mlflow.set_tracking_uri(server.url)
    return content(mlflow.artifacts.download_artifacts(uri, dst_path=str(folder)) and folder)


@pytest.mark.parametrize(
    ("reference", "version"),
    [("/1", 1), ("/2", 2), ("@champion", 1), ("/Production", 1), ("/production", 1), ("/latest", 2)],
)
def test_versions_aliases_and_stages_are_fetched(server, tmp_path, monkeypatch, reference, version):
    uri = f"models:/iris model{reference}"
    pull(uri, tmp_path / "ours", **server.variables)
    expected = files_of(version)
    if server.variables.get("AWS_ENDPOINT_URL"):
        # An empty object of a bucket stands for a folder, unless its name has an extension.
        del expected["empty"]
    assert content(tmp_path / "ours") == expected
    (tmp_path / "theirs").mkdir()
    theirs = downloaded(server, uri, tmp_path / "theirs", monkeypatch)
    # MLflow adds files about the registered model.
    assert {name: theirs[name] for name in expected} == expected


def test_runs_and_artifacts_are_fetched(server, tmp_path):
    run, location = server.runs[1], server.client.get_run(server.runs[1]).info.artifact_uri
    pull(f"runs:/{run}/model", tmp_path / "run", **server.variables)
    pull(f"{location}/model", tmp_path / "artifacts", **server.variables)
    assert content(tmp_path / "run") == content(tmp_path / "artifacts")
    assert content(tmp_path / "run")["MLmodel"] == b"model_uuid: 2\n"
    pull(f"runs:/{run}/model/code/a b+c.py", tmp_path / "file", **server.variables)
    assert content(tmp_path / "file") == {"a b+c.py": b"code/a b+c.py of 2"}
    pull("models:/iris model@champion/code", tmp_path / "below", **server.variables)
    assert content(tmp_path / "below") == {"a b+c.py": b"code/a b+c.py of 1", "d.txt": b"code/d.txt of 1"}


def test_logged_models_of_mlflow_3_are_fetched(server, tmp_path, monkeypatch):
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    mlflow.set_tracking_uri(server.url)
    model = tmp_path / "model.py"
    model.write_text("import mlflow\nmlflow.models.set_model(lambda model_input: model_input)\n")
    with mlflow.start_run() as run:
        logged = mlflow.pyfunc.log_model(name="own", python_model=str(model), pip_requirements=[])
    expected = downloaded(server, f"models:/{logged.model_id}", tmp_path / "theirs", monkeypatch)
    for number, uri in enumerate([f"models:/{logged.model_id}", f"runs:/{run.info.run_id}/own"]):
        pull(uri, tmp_path / str(number), **server.variables)
        ours = content(tmp_path / str(number))
        assert "MLmodel" in ours and {name: expected[name] for name in ours} == ours


def test_registered_models_are_served_and_switched_by_their_alias(server, tmp_path):
    folder = tmp_path / "models"
    write_settings(folder, "models:/iris model@serving/model.json")
    server.client.set_registered_model_alias("iris model", "serving", "1")
    with serving(folder, MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **server.variables) as running:
        wait_until(running.is_ready, "the model", running.process)
        assert running.predict() == [0.0]


def test_models_in_the_cache_are_fetched_again_for_another_version_only(proxied, tmp_path):
    folder, proxy = tmp_path / "models", Proxy(proxied.port)
    write_settings(folder, "models:/iris model@cached")
    variables = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{proxy.port}", "MLFLOW_TRACKING_TOKEN": SECRET}
    proxied.client.set_registered_model_alias("iris model", "cached", "1")
    files = []
    proxy.faults = lambda path, _: files.append(path) if path.endswith("model.json") else None
    with serving(folder, MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **variables) as running:
        wait_until(running.is_ready, "the model", running.process)
        running.call("/v2/repository/models/iris/load", {})
        assert len(files) == 1
        proxied.client.set_registered_model_alias("iris model", "cached", "2")
        running.call("/v2/repository/models/iris/load", {})
        assert len(files) == 2
    # The token goes with every request, and `serving` looks for it in the log.
    assert proxy.authorizations == {f"Bearer {SECRET}"}
    proxy.stop()


def test_broken_downloads_are_continued(proxied, tmp_path):
    data = os.urandom(5_000_000)
    run = proxied.log_model("iris model", {**files_of(3), "large.bin": data})
    proxy = Proxy(proxied.port)
    broken = []

    def faults(path, _number):
        if path.endswith("large.bin") and len(broken) < 3:
            broken.append(path)
            return {"reset": 1_000_000 * len(broken)}
        return None

    proxy.faults = faults
    pull(f"runs:/{run}/model", tmp_path, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{proxy.port}")
    assert (tmp_path / "large.bin").read_bytes() == data and len(broken) == 3
    proxy.stop()


def test_basic_credentials_are_sent_and_not_shown(proxied, tmp_path):
    proxy = Proxy(proxied.port)
    tracking = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{proxy.port}"}
    pull("models:/iris model/1", tmp_path, MLFLOW_TRACKING_USERNAME="me", MLFLOW_TRACKING_PASSWORD=SECRET, **tracking)
    [sent] = proxy.authorizations
    assert sent.startswith("Basic ")
    proxy.faults = lambda _path, _number: {"status": 403}
    printed = pull("models:/iris model/1", tmp_path, code=1, MLFLOW_TRACKING_TOKEN=SECRET, **tracking)
    assert "access denied with `MLFLOW_TRACKING_TOKEN`" in printed
    proxy.stop()


def test_missing_models_and_servers_are_named(proxied, tmp_path):
    def fails(uri, **variables):
        return pull(uri, tmp_path, code=1, **{**proxied.variables, **variables})

    assert "Model Version (name=iris model, version=9) not found" in fails("models:/iris model/9")
    assert "the model `iris model` has no version in the stage `Staging`" in fails("models:/iris model/Staging")
    assert "champion2" in fails("models:/iris model@champion2")
    assert "has code/, empty" not in fails(f"runs:/{proxied.runs[0]}/none")
    assert "no object has the key" in fails(f"runs:/{proxied.runs[0]}/none")
    assert "is not the server of `MLFLOW_TRACKING_URI`" in fails("mlflow-artifacts://example.com/0/x")
    printed = fails("models:/iris model/1", MLFLOW_TRACKING_URI="")
    assert "`MLFLOW_TRACKING_URI` is not set: set it to the address of the MLflow server" in printed
    assert "expected an address of HTTP" in fails("models:/iris model/1", MLFLOW_TRACKING_URI="databricks")
    assert "expected models:/NAME/VERSION" in fails("models:/iris")


def test_locations_on_the_disk_of_the_server_must_be_here(tmp_path, proxied):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/MLmodel").write_text("here")
    proxied.client.create_registered_model("on-disk")
    for path in (tmp_path / "model", tmp_path / "gone"):
        proxied.client.create_model_version("on-disk", f"mlflow-artifacts:/{path.name}")
    database = proxied.log.name.replace("log", "db")
    # The server accepts no location on its disk from clients.
    with sqlite3.connect(database) as tables:
        for version, path in enumerate([tmp_path / "model", tmp_path / "gone"], 1):
            update = "update model_versions set storage_location = ?, source = ? where name = 'on-disk' and version = ?"
            tables.execute(update, (f"file://{path}", f"file://{path}", version))
    pull("models:/on-disk/1", tmp_path / "out", **proxied.variables)
    assert content(tmp_path / "out") == {"MLmodel": b"here"}
    printed = pull("models:/on-disk/2", tmp_path / "out2", code=1, **proxied.variables)
    assert "on the disk of the MLflow server, which is not there on this machine" in printed
