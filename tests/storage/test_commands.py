"""What commands say about models of object stores."""

import json
import re
import subprocess
import time

import pytest
from conftest import BINARY, MODEL, SECRET, environment, write_settings
from test_repositories import PYTHON_MODEL, fill, settings

PORTS = {"MLSERVER_HTTP_PORT": "0", "MLSERVER_GRPC_PORT": "0", "MLSERVER_METRICS_PORT": "0"}


def run(*arguments, code=0, **variables):
    command = [BINARY, *map(str, arguments)]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=60)
    printed = done.stdout + done.stderr
    assert done.returncode == code and SECRET not in printed, printed
    return printed


def test_doctor_says_what_is_fetched_and_with_which_credentials(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(tmp_path, s3.uri(prefix))
    printed = run("doctor", tmp_path, **s3.variables(), **PORTS)
    size = len(MODEL.read_bytes())
    expected = f"fetched from `{s3.uri(prefix)}` when it is loaded: 1 files, {size} bytes, with `AWS_ACCESS_KEY_ID`"
    assert f"model `iris` is {expected}" in printed
    write_settings(tmp_path, s3.uri(f"{prefix}/none"))
    printed = run("doctor", tmp_path, code=1, **s3.variables(), **PORTS)
    assert f"model `iris`: cannot fetch `{s3.uri(prefix)}/none`" in printed and "the bucket has model.json" in printed


def promptly(*arguments, **options):
    """Runs a command that has to end within 10 s, whatever its store does."""
    began = time.monotonic()
    printed = run(*arguments, **options)
    assert time.monotonic() - began < 10, printed
    return printed


UNREACHABLE = r"(no response from 127\.0\.0\.1:\d+ within 6 s|cannot connect to 127\.0\.0\.1:\d+: connection refused)"


def test_commands_end_soon_if_a_store_cannot_be_reached(s3, unreachable, cache, tmp_path):
    variables = {**s3.variables(unreachable), **cache, **PORTS}
    for name in ("first", "second", "third"):
        write_settings(tmp_path / "models" / name, s3.uri(f"none/{name}"), model=name)
    printed = promptly("doctor", tmp_path / "models", code=1, **variables)
    for name in ("first", "second", "third"):
        assert re.search(f"model `{name}`: cannot fetch `s3://models/none/{name}`: {UNREACHABLE}", printed), printed
    for command in (["doctor"], ["inspect"], ["config", "show"]):
        printed = promptly(*command, s3.uri("none/model"), code=1, **variables)
        assert re.search(f"cannot fetch `s3://models/none/model`: {UNREACHABLE}", printed), printed
    variables["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{unreachable}"
    printed = promptly("inspect", "models:/none/1", code=1, **variables)
    assert re.search(UNREACHABLE, printed), printed


def test_commands_use_the_cache_if_a_store_cannot_be_reached(s3, prefix, unreachable, cache, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    uri = s3.uri(f"{prefix}/model.json")
    expected = run("inspect", uri, "--example", **s3.variables(), **cache)
    variables = {**s3.variables(unreachable), **cache, **PORTS}
    printed = promptly("inspect", uri, "--example", **variables)
    assert expected in printed
    assert f"warning: `{uri}` cannot be reached; the model of the last fetch is used (`storage_offline`)" in printed
    write_settings(tmp_path / "models", uri)
    printed = promptly("doctor", tmp_path / "models", **variables)
    size = len(MODEL.read_bytes())
    last = rf"a start uses the last fetch in the cache, 1 files, {size} bytes \(`storage_offline`\)"
    assert re.search(f"model `iris`: cannot fetch `{uri}`: {UNREACHABLE}.*; {last}", printed), printed
    # A start without the cache would fail, and so would one of other files.
    printed = promptly("doctor", tmp_path / "models", code=1, **variables, MLSERVER_STORAGE_OFFLINE="fail")
    assert "a start uses" not in printed
    lock = {"version": 1, "files": [{"path": "model.json", "size": size, "sha256": "0" * 64}]}
    (tmp_path / "models/mlserver.lock").write_text(json.dumps(lock))
    printed = promptly("doctor", tmp_path / "models", code=1, **variables)
    assert "a start uses" not in printed and "mlserver.lock" in printed


def test_inspect_takes_uris(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    cache = {"MLSERVER_STORAGE_CACHE": str(tmp_path)}
    uri = s3.uri(f"{prefix}/model.json")
    found = json.loads(run("inspect", uri, "--format", "json", **s3.variables(), **cache))
    expected = json.loads(run("inspect", MODEL, "--format", "json"))
    # What it measures is not always the same.
    del found["memory_bytes"], expected["memory_bytes"]
    assert found == expected
    printed = run("inspect", s3.uri(f"{prefix}/none.json"), code=1, **s3.variables(), **cache)
    assert f"no object has the key `{prefix}/none.json`" in printed


@pytest.fixture
def repository(s3, prefix, tmp_path, cache):
    """The URI of a repository in S3, and the variables of a command that reads it."""
    fill(s3, prefix)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    yield s3.uri(prefix), {**s3.variables(), **cache, **PORTS, "TMPDIR": str(temporary)}
    assert not list(temporary.glob("mlserver-*"))


def cached_files(tmp_path):
    """The names of the files that were fetched completely. The first 16 KiB tell what kind of model a file has."""
    found = (tmp_path / "cache").rglob("*")
    return {path.name for path in found if path.is_file() and path.stat().st_size != 16 << 10}


def test_config_show_reads_repositories_of_stores(repository, tmp_path):
    uri, variables = repository
    printed = run("config", "show", uri, **variables)
    assert f"model `iris` in {uri}/iris/model-settings.json\n" in printed
    assert re.search(rf'uri = "\./model\.json" +\({uri}/iris/model-settings\.json\)', printed)
    assert f"warning: `settings.json` in `{uri}` is not read" in printed and "debug = 7" not in printed
    printed = run("config", "show", uri, "--format", "json", **variables)
    found = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    assert {model["file"] for model in found["models"]} >= {f"{uri}/code/model-settings.json"}
    assert not {"model.py", "model.json", "iris.json"} & cached_files(tmp_path)


def test_doctor_examines_repositories_of_stores(s3, repository, prefix, tmp_path):
    uri, variables = repository
    printed = run("doctor", uri, **variables)
    assert f"`settings.json` in `{uri}` is not read" in printed
    # Its settings and the model, and a file of another folder.
    size = len(MODEL.read_bytes())
    for name, files in [("iris", 2), ("second", 2)]:
        assert f"model `{name}` is fetched from `{uri}/{name}` when it is loaded: {files} files" in printed
    assert f"{size + len(settings('iris', uri='./model.json'))} bytes, with `AWS_ACCESS_KEY_ID`" in printed
    assert "model `code`" in printed and "runs in Python" in printed
    # Only what is checked was fetched.
    assert {"model.py", "helper.py"} <= cached_files(tmp_path)
    assert not {"model.json", "iris.json"} & cached_files(tmp_path)
    s3.put(f"{prefix}/code/model.py", PYTHON_MODEL.replace("class Model", "class Other").encode())
    s3.put(f"{prefix}/iris/model-settings.json", settings("iris", uri="./none.json"))
    printed = run("doctor", uri, code=1, **variables)
    assert f"model `iris`: cannot fetch `{uri}/iris/none.json`" in printed and "found 2 problems" in printed
    printed = run("doctor", f"{uri}/none", code=1, **variables)
    assert "no models found" in printed


def test_repositories_of_stores_are_read_from_the_cache(s3, repository, unreachable, tmp_path):
    uri, variables = repository
    (tmp_path / "in.csv").write_text("sepal length,sepal width,petal length,petal width\n5.1,3.5,1.4,0.2\n")
    arguments = ["--model-name", "iris", "-i", tmp_path / "in.csv", "-o", tmp_path / "out.csv"]
    run("infer", "--embedded", uri, *arguments, **variables)
    variables |= s3.variables(unreachable)
    last_known = f"`{uri}` cannot be reached; its last known models are used (`storage_offline`)"
    printed = promptly("config", "show", uri, **variables)
    assert f"warning: {last_known}" in printed and "model `iris`" in printed
    printed = promptly("doctor", uri, code=1, **variables)
    assert last_known in printed
    assert re.search(f"model `iris`: cannot fetch `{uri}/iris`: .*; a start uses the last fetch in the cache, 2 files", printed)
    # The other model was never fetched.
    assert re.search(f"model `second`: cannot fetch `{uri}/second`: {UNREACHABLE}[^;]*(; is the server running[?])?\n", printed)


def test_embedded_models_come_from_repositories_of_stores(repository, tmp_path):
    uri, variables = repository
    columns = ["sepal length", "sepal width", "petal length", "petal width"]
    (tmp_path / "in.csv").write_text(",".join(columns) + "\n5.1,3.5,1.4,0.2\n6.7,3.0,5.2,2.3\n")

    def infer(name, code=0):
        arguments = ["--model-name", name, "-i", tmp_path / "in.csv", "-o", tmp_path / "out.csv"]
        return run("infer", "--embedded", uri, *arguments, code=code, **variables)

    printed = infer("second")
    assert f"of the folder `{uri}`, in this process" in printed and "2 rows, 0 failed" in printed
    answers = (tmp_path / "out.csv").read_text()
    files = cached_files(tmp_path)
    assert "iris.json" in files and "model.json" not in files
    infer("iris")
    assert (tmp_path / "out.csv").read_text() == answers
    assert "it has code, iris, second" in infer("none", code=1)


def test_dockerfiles_leave_models_in_their_store(tmp_path):
    write_settings(tmp_path, "s3://models/churn")
    assert "native model, no Python needed" in run("dockerfile", tmp_path)
