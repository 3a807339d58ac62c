"""Tempo's own runtime runs on our SDK."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support import need, serve, suite

suite("tempo")

#: As in Tempo's manual: functions that are pickled with their dependencies, including a pipeline.
SCRIPT = """
import sys
import numpy as np
from tempo.serve.loader import save
from tempo.serve.metadata import ModelFramework
from tempo.serve.utils import model, pipeline

folder = sys.argv[1]

@model(name="double", platform=ModelFramework.Custom, local_folder=f"{folder}/double/artifacts")
def double(payload: np.ndarray) -> np.ndarray:
    return payload * 2

@pipeline(name="inference-pipeline", local_folder=f"{folder}/inference-pipeline/artifacts")
def largest(payload: np.ndarray) -> np.ndarray:
    return payload.max(axis=1)

save(double, save_env=False)
save(largest, save_env=False)
"""


def ask(server, model, shape, data):
    tensor = {"name": "payload", "datatype": "FP64", "shape": shape, "data": data}
    answer = server.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})
    assert answer.status == 200, answer.body
    (output,) = answer.json()["outputs"]
    return output["shape"], output["data"]


def test_tempo_models_and_pipelines_are_served(tmp_path):
    need("tempo")
    for name in ("double", "inference-pipeline"):
        (tmp_path / name / "artifacts").mkdir(parents=True)
        settings = {"name": name, "implementation": "tempo.mlserver.InferenceRuntime", "parameters": {"uri": "./artifacts"}}
        (tmp_path / name / "model-settings.json").write_text(json.dumps(settings))
    sdk = Path(__file__).resolve().parents[2] / "python"
    variables = {**os.environ, "PYTHONPATH": str(sdk)}
    subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], env=variables, check=True, capture_output=True)
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        assert ask(server, "double", [2], [1, 2.5]) == ([2], [2.0, 5.0])
        # Nested data, as in Tempo's manual.
        assert ask(server, "inference-pipeline", [2, 2], [[1, 3], [7, 5]]) == ([2], [3.0, 7.0])
    finally:
        server.stop()
