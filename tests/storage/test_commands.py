"""What commands say about models of object stores."""

import json
import subprocess

from conftest import BINARY, MODEL, SECRET, environment, write_settings


def run(*arguments, code=0, **variables):
    command = [BINARY, *map(str, arguments)]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=60)
    printed = done.stdout + done.stderr
    assert done.returncode == code and SECRET not in printed, printed
    return printed


def test_doctor_says_what_is_fetched_and_with_which_credentials(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    write_settings(tmp_path, s3.uri(prefix))
    ports = {"MLSERVER_HTTP_PORT": "0", "MLSERVER_GRPC_PORT": "0", "MLSERVER_METRICS_PORT": "0"}
    printed = run("doctor", tmp_path, **s3.variables(), **ports)
    size = len(MODEL.read_bytes())
    expected = f"fetched from `{s3.uri(prefix)}` when it is loaded: 1 files, {size} bytes, with `AWS_ACCESS_KEY_ID`"
    assert f"model `iris` is {expected}" in printed
    write_settings(tmp_path, s3.uri(f"{prefix}/none"))
    printed = run("doctor", tmp_path, code=1, **s3.variables(), **ports)
    assert f"model `iris`: cannot fetch `{s3.uri(prefix)}/none`" in printed and "the bucket has model.json" in printed


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


def test_dockerfiles_leave_models_in_their_store(tmp_path):
    write_settings(tmp_path, "s3://models/churn")
    assert "native model, no Python needed" in run("dockerfile", tmp_path)
