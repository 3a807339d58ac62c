"""MLflow's own protocol, and MLflow's own command that starts the executable."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import BINARY, PATIENCE
from support import free_port, golden_models, need, run_example, serve, settings, suite

suite("mlflow")

from mlflow_scoring import CASES, FILE, answer

IMPLEMENTATION = "mlserver_mlflow.MLflowRuntime"


def serve_alone(tmp_path, model, python=sys.executable, **variables):
    """Serves a model's folder as MLflow does: only environment variables describe the model."""
    folder = tmp_path / model
    shutil.copytree(golden_models("mlflow") / model / "model", folder)
    described = {"NAME": model, "IMPLEMENTATION": IMPLEMENTATION, "URI": str(folder)}
    variables.update({f"MLSERVER_MODEL_{name}": value for name, value in described.items()})
    return serve(folder, python, **variables)


def ask(server, method, path, body="", content_type="application/json"):
    return answer(server.url, {"method": method, "path": path, "body": body, "content_type": content_type})


#: Models and their backends; native models are tested with both.
SERVED = [*((model, "auto") for model in dict.fromkeys(case["model"] for case in CASES)), ("flowers", "python")]


@pytest.mark.parametrize(("model", "backend"), SERVED)
def test_scoring_answers_match_mlflow(model, backend, tmp_path):
    need("mlflow")
    server = serve_alone(tmp_path, model, MLSERVER_MODEL_EXTRA=json.dumps({"backend": backend}))
    try:
        server.wait_until_ready()
        told = []
        for case in json.loads(FILE.read_text()):
            expected = case.get("ours", case["answer"])
            if case["model"] == model and (found := answer(server.url, case)) != expected:
                told.append(f"{case['body']}\n  expected {expected}\n  found    {found}")
        assert not told, "\n".join(told)
    finally:
        server.stop()


def test_onnx_flavor_answers_as_its_python_function(tmp_path):
    need("mlflow")
    if not os.environ.get("CI"):
        pytest.importorskip("onnxruntime")
    import mlflow
    import numpy
    import onnx_models

    network = onnx_models.network()
    mlflow.onnx.save_model(network, tmp_path / "network/model")
    settings(tmp_path / "network-settings", IMPLEMENTATION, "../network/model")
    # The server has no session, so that it leaves a model with options for one to Python.
    mlflow.onnx.save_model(network, tmp_path / "optioned/model", onnx_session_options={"intra_op_num_threads": 1})
    settings(tmp_path / "optioned-settings", IMPLEMENTATION, "../optioned/model")
    rows = onnx_models.flowers()[0]
    expected = mlflow.pyfunc.load_model(str(tmp_path / "network/model")).predict(rows)
    with serve(tmp_path, sys.executable) as server:
        server.wait_until_ready()
        x = {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "data": rows.ravel().tolist()}
        body = {"inputs": [x], "parameters": {"content_type": "np"}}

        def outputs(model):
            answer = server.post(f"/v2/models/{model}/infer", body)
            assert answer.status == 200, answer.body
            assert answer.json()["parameters"]["content_type"] == "dict"
            outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
            assert set(outputs) == {"scores", "label"}
            assert outputs["label"] == expected["label"].tolist()
            return numpy.array(outputs["scores"], dtype=numpy.float32)

        assert outputs("optioned-settings").tolist() == expected["scores"].ravel().tolist()
        parameters = server.get("/v2/models/optioned-settings").json()["parameters"]
        assert parameters["backend"] == "python"
        assert "mlflow.onnx" in parameters["backend_reason"]
        assert "onnx_session_options" in parameters["backend_reason"]
        # The server's own evaluation may round differently.
        numpy.testing.assert_allclose(outputs("network-settings"), expected["scores"].ravel(), rtol=1e-5, atol=1e-6)
        assert server.get("/v2/models/network-settings").json()["parameters"]["backend"] == "native"


def test_unreadable_body_is_rejected_without_traceback(tmp_path):
    need("mlflow")
    server = serve_alone(tmp_path, "kinds")
    try:
        server.wait_until_ready()
        body = json.dumps({"inputs": {"x": [1]}, "params": {"kind": "error"}})
        refused = server.request("POST", "/invocations", body.encode(), {"content-type": "application/json"})
        assert (refused.status, set(refused.json())) == (400, {"error_code", "message", "sqlstate", "error_class"})
        assert "the secret of the model" in server.log.read_text()
        deep = b"[" * 10**5
        for text, content_type in [(b'"\xff"', "application/json"), (b"\xff", "text/csv"), (deep, "application/json")]:
            found = server.request("POST", "/invocations", text, {"content-type": content_type})
            assert (found.status, found.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), text[:9]
        import pandas

        parquet = pandas.DataFrame({"x": [1]}).to_parquet()
        found = server.request("POST", "/invocations", parquet, {"content-type": "application/vnd.apache.parquet"})
        assert found.body == b'{"predictions": [0.5, 2.0]}'
        assert ask(server, "GET", "/invocations")["status"] == 405
        assert ask(server, "POST", "/invocations", "x", "")["status"] == 415
    finally:
        server.stop()


def test_ping_answers_during_prediction_with_timeout(tmp_path):
    need("mlflow")
    server = serve_alone(tmp_path, "kinds", MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT="2")
    try:
        server.wait_until_ready()
        slow = json.dumps({"inputs": {"x": [1]}, "params": {"kind": "slow"}})
        found = []
        call = threading.Thread(target=lambda: found.append(ask(server, "POST", "/invocations", slow)))
        call.start()
        server.wait_for(lambda: server.get("/ping").status == 200)
        assert not found
        call.join(PATIENCE)
        late = {"status": 504, "content_type": "application/json", "text": "Request processing time exceeded limit"}
        assert found == [late]
    finally:
        server.stop()


def test_mlflow_models_serve_starts_the_executable(tmp_path):
    need("mlflow")
    model = tmp_path / "a folder with spaces"
    shutil.copytree(golden_models("mlflow") / "flowers/model", model)
    for path in [model, *model.iterdir()]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mlserver").symlink_to(BINARY)
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLSERVER_")}
    environment["PATH"] = f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment["MLSERVER_GRPC_PORT"] = environment["MLSERVER_METRICS_PORT"] = "0"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model, "-h", "127.0.0.1", "-p", str(port)]
    command += ["-w", "2", "--enable-mlserver", "--env-manager", "local"]
    log = (tmp_path / "log").open("w+")
    # A process group of its own: mlflow starts the server through a shell.
    mlflow = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        split = {"method": "POST", "path": "/invocations", "content_type": "application/json"}
        columns = ["sepal length", "sepal width", "petal length", "petal width"]
        split["body"] = json.dumps({"dataframe_split": {"columns": columns, "data": [[5.1, 3.5, 1.4, 0.2]]}})
        end = time.monotonic() + 2 * PATIENCE
        while not answers(f"{url}/ping"):
            assert mlflow.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.1)
        assert answer(url, split)["text"] == '{"predictions": [0]}'
        with urllib.request.urlopen(f"{url}/v2/models/mlflow-model", timeout=PATIENCE) as response:
            metadata = json.load(response)
        assert metadata["parameters"] == {"content_type": "pd", "backend": "native"}
    finally:
        os.killpg(mlflow.pid, signal.SIGTERM)
        mlflow.wait(PATIENCE)
        log.close()
    end = time.monotonic() + PATIENCE
    while answers(f"{url}/ping"):
        assert time.monotonic() < end, "the server has outlived MLflow"
        time.sleep(0.1)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.read() == b"\n"
    except OSError:
        return False


def test_example_readme_commands_work(tmp_path):
    need("mlflow")
    run_example(tmp_path, "mlflow", "/ping")
