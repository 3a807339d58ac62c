"""`pip install .` puts the server on the PATH of an environment, and models run in that environment's Python."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from archive import unpack
from conftest import BINARY, PATIENCE, ROOT, Server

VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
MODEL = """
import json, sys
import mlserver
from mlserver.types import InferenceResponse, ResponseOutput

class Where(mlserver.MLModel):
    async def predict(self, payload):
        text = json.dumps([sys.prefix, mlserver.__version__])
        output = ResponseOutput(name="where", shape=[1], datatype="BYTES", data=[text])
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


def run(*command, **variables):
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Returns the wheel of a release, or the one that pip builds: without network except for crates, from the executable under test."""
    if "MLSERVER_TEST_WHEEL" in os.environ:
        return Path(os.environ["MLSERVER_TEST_WHEEL"])
    out = tmp_path_factory.mktemp("wheel")
    profile = {"debug": "dev"}.get(BINARY.parent.name, BINARY.parent.name)
    path = os.pathsep.join([os.path.join(sys.prefix, "bin"), os.environ["PATH"]])
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--config-settings", f"build-args=--profile={profile}"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, ROOT]
    run(*command, PATH=path, CARGO_TARGET_DIR=str(BINARY.parents[1]))
    (wheel,) = out.iterdir()
    return wheel


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Returns a new virtual environment with the wheel installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--no-index", wheel)
    return folder


def where(folder, **options):
    """Serves a model and returns the interpreter that it reports."""
    (folder / "models.py").write_text(MODEL)
    (folder / "model-settings.json").write_text(json.dumps({"name": "m", "implementation": "models.Where"}))
    server = Server(folder, **options).wait_until_ready()
    try:
        inputs = [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]
        answer = server.post("/v2/models/m/infer", {"inputs": inputs})
        assert answer.status == 200, answer.body
        return json.loads(answer.json()["outputs"][0]["data"][0])
    finally:
        server.stop()


def test_wheel_contains_executable_and_package(wheel):
    assert re.fullmatch(rf"mlserver-{re.escape(VERSION)}-py3-none-[\w.]+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    source = [path.relative_to(ROOT / "python") for path in (ROOT / "python/mlserver").rglob("*.py")]
    assert {str(path) for path in source} <= set(names)
    outside = {name.split("/")[0] for name in names} - {"mlserver"}
    assert outside == {f"mlserver-{VERSION}.data", f"mlserver-{VERSION}.dist-info"}
    assert f"mlserver-{VERSION}.data/scripts/mlserver" in names


def test_wheel_has_an_extra_for_every_runtime(wheel):
    """Only the metadata are checked: installing frameworks takes gigabytes (`tests/frameworks/run`)."""
    with zipfile.ZipFile(wheel) as archive:
        lines = archive.read(f"mlserver-{VERSION}.dist-info/METADATA").decode().splitlines()
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")}
    runtimes = {path.name.partition("_")[2].replace("_", "-") for path in (ROOT / "python").glob("mlserver_*")}
    assert extras == {*runtimes, "all"}
    needed = [line for line in lines if line.startswith("Requires-Dist: ")]
    assert all("extra ==" in line for line in needed), "without an extra, nothing is needed"
    for runtime in runtimes:
        assert any(re.search(rf"extra == ['\"]{runtime}['\"]", line) for line in needed), runtime
    (together,) = (line for line in needed if re.search("extra == ['\"]all['\"]", line))
    assert set(re.search(r"mlserver\[(.+?)\]", together)[1].split(",")) == {each for each in runtimes if not each.startswith("alibi-")}


def test_wheel_models_run_in_the_server_s_environment(environment, tmp_path):
    prefix, version = where(tmp_path, executable=environment / "bin/mlserver", PATH="/usr/bin:/bin")
    assert (prefix, version) == (str(environment), VERSION)


def test_wheel_package_can_be_imported(environment):
    program = "import mlserver, mlserver.codecs; print(mlserver.__version__, mlserver.MLModel.__module__)"
    assert run(environment / "bin/python", "-c", program) == f"{VERSION} mlserver.model\n"
    assert run(environment / "bin/mlserver", "--version").split()[2] == VERSION


def test_executable_alone_contains_the_package(environment, tmp_path):
    """It needs only an interpreter: no package `mlserver` is installed for this one."""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy2(environment / "bin/mlserver", alone)
    folder = tmp_path / "models"
    folder.mkdir()
    bare = tmp_path / "bare"
    venv.create(bare)
    cache = tmp_path / "cache"
    path = f"{bare / 'bin'}:/usr/bin:/bin"
    prefix, version = where(folder, executable=alone / "mlserver", PATH=path, XDG_CACHE_HOME=str(cache))
    assert (prefix, version) == (str(bare), VERSION)
    assert list(cache.rglob("mlserver/__init__.py"))


#: What MLflow's page says to install, and a runtime of the original. Both ask pip for `mlserver`.
BESIDE = ["mlflow[mlserver]==3.12.0", "mlserver-sklearn==1.7.1", "scikit-learn==1.9.1"]
ORIGIN = """
import json
import mlserver, mlserver_mlflow, mlserver_sklearn
from mlserver.types import InferenceResponse, ResponseOutput

class Origin(mlserver.MLModel):
    async def predict(self, payload):
        text = json.dumps([mlserver.__version__, mlserver_mlflow.__file__, mlserver_sklearn.__file__])
        output = ResponseOutput(name="origin", shape=[1], datatype="BYTES", data=[text])
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


def test_packages_of_the_original_beside_the_wheel_do_no_harm(wheel, tmp_path):
    """Really installs them from PyPI, after the wheel, in the order of a user who follows MLflow's page."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    pip = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", wheel)
    # Bytecode of a hundred packages, of which few modules are imported, would take a minute.
    run(*pip, "install", "--no-compile", *BESIDE)
    packages = {package["name"]: package["version"] for package in json.loads(run(*pip, "list", "--format", "json"))}
    assert packages["mlserver"] == VERSION, "pip keeps the wheel"
    assert (packages["mlserver-sklearn"], packages["mlserver-mlflow"][:2]) == ("1.7.1", "1.")
    assert "mlserver" not in run(*pip, "check").replace("No broken", "")
    assert run(environment / "bin/mlserver", "--version").split()[2] == VERSION
    assert (environment / "bin/mlserver").read_bytes()[:4] == b"\x7fELF"

    folder = tmp_path / "models"
    for framework, model in [("sklearn", "iris"), ("mlflow", "flowers")]:
        unpack(ROOT / f"tests/frameworks/goldens/{framework}/models.tar.gz", tmp_path / framework)
        shutil.copytree(tmp_path / framework / model, folder / model)
        # Their runtimes in Python, of which PyPI's packages have others of the same names.
        file = folder / model / "model-settings.json"
        settings = json.loads(file.read_text())
        settings["parameters"]["extra"] = {"backend": "python"}
        file.write_text(json.dumps(settings))
    (folder / "origin").mkdir()
    (folder / "origin/models.py").write_text(ORIGIN)
    (folder / "origin/model-settings.json").write_text(json.dumps({"name": "origin", "implementation": "models.Origin"}))
    doctor = run(environment / "bin/mlserver", "doctor", folder, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
    assert "Seldon" not in doctor
    server = Server(folder, executable=environment / "bin/mlserver", PATH="/usr/bin:/bin").wait_until_ready(3 * PATIENCE)
    try:
        flowers = {"name": "x", "shape": [1, 4], "datatype": "FP64", "data": [5.1, 3.5, 1.4, 0.2]}
        answer = server.post("/v2/models/iris/infer", {"inputs": [flowers]}).json()
        assert answer["outputs"][0]["data"] == [0], answer
        columns = ["sepal length", "sepal width", "petal length", "petal width"]
        answer = server.post("/invocations", {"dataframe_split": {"columns": columns, "data": [flowers["data"]]}}).json()
        assert answer == {"predictions": [0]}
        answer = server.post("/v2/models/origin/infer", {"inputs": [flowers]}).json()
        version, *files = json.loads(answer["outputs"][0]["data"][0])
        assert version == VERSION
        assert all("site-packages/mlserver_" not in file for file in files), f"the worker's own runtimes come first: {files}"
    finally:
        server.stop()
        shutil.rmtree(environment)


def test_missing_framework_names_the_extra(environment, tmp_path):
    """Where the wheel is installed, its extra installs what the runtime needs; elsewhere pip finds another `mlserver`."""
    models = {"alibi_detect": "drift", "alibi_explain": "shap", "catboost": "classes", "huggingface": "feelings"}
    models.update({"lightgbm": "classes", "mlflow": "free", "sklearn": "iris", "xgboost": "classes"})
    for name, model in models.items():
        unpack(ROOT / f"tests/frameworks/goldens/{name}/models.tar.gz", tmp_path / "goldens")
        shutil.move(tmp_path / "goldens" / model, tmp_path / name)
        shutil.rmtree(tmp_path / "goldens")
        file = tmp_path / name / "model-settings.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "name": name}))
    variables = {"PATH": "/usr/bin:/bin", "MLSERVER_EXIT_ON_LOAD_FAILURE": "false"}
    server = Server(tmp_path, executable=environment / "bin/mlserver", **variables)

    def failed():
        found = server.get("/v2/health/ready").json().get("models", [])
        return found if found and not any(model["state"] == "LOADING" for model in found) else None

    try:
        found = {model["name"]: model["reason"] for model in server.wait_for(failed)}
    finally:
        server.stop()
    for name in models:
        install = f"{environment / 'bin/python3'} -m pip install 'mlserver[{name.replace('_', '-')}]'"
        assert found[name].endswith(f"does not have; install it there: {install}"), found[name]


def test_wheel_has_the_features_of_releases(environment, tmp_path):
    (tmp_path / "settings.json").write_text(json.dumps({"kafka_enabled": True, "tracing_server": "127.0.0.1:1"}))
    command = [environment / "bin/mlserver", "doctor", tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "without the feature" not in found.stdout + found.stderr
    settings = run(environment / "bin/mlserver", "config", "list")
    assert "no effect" not in settings
