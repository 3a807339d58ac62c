"""Models of MLlib answer as PySpark itself; MLServer 1.7.1 answers all of them with 500."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import need, reasons, run_example, serve, suite

suite("mllib")

from mllib_train import ASKED

IMPLEMENTATION = "mlserver_mllib.MLlibModel"
#: Spark needs several seconds for each model on a busy machine.
FORMATS = ["LogisticRegression", "NaiveBayes", "SVM", "KMeans", "IsotonicRegression", "LinearRegression", "Lasso"]
FORMATS += ["RidgeRegression", "DecisionTree", "GradientBoostedTrees", "RandomForest"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Yields a folder with a model of each format, and PySpark's predictions for some rows."""
    need("mllib")
    folder = tmp_path_factory.mktemp("mllib") / "models"
    folder.mkdir()
    train = Path(__file__).parent / "mllib_train.py"
    subprocess.run([sys.executable, train, folder], check=True, capture_output=True, timeout=500)
    return folder


@pytest.fixture(scope="module")
def server(trained):
    """Yields a server with all models, once they are loaded."""
    server = serve(trained, sys.executable, MLSERVER_PARALLEL_WORKERS="1")
    try:
        yield server.wait_until_ready(300)
    finally:
        server.stop()


def ask(server, model, *inputs):
    return server.post(f"/v2/models/{model}/infer", {"inputs": list(inputs)})


def tensor(shape, data, datatype="FP64"):
    return {"name": "x", "datatype": datatype, "shape": shape, "data": data}


@pytest.mark.parametrize("model", FORMATS)
def test_answers_match_pyspark(model, trained, server):
    told = json.loads((trained / "told.json").read_text())[model]
    rows = [row[:1] for row in ASKED] if model == "IsotonicRegression" else ASKED
    for row, expected in zip(rows, told):
        for shape in ([len(row)], [1, len(row)]):
            (output,) = ask(server, model, tensor(shape, row)).json()["outputs"]
            assert (output["name"], output["datatype"], output["shape"]) == ("predict", "FP32", [1])
            assert output["data"] == pytest.approx([expected], rel=1e-6)
    (output,) = ask(server, model, tensor([3, len(rows[0])], rows)).json()["outputs"]
    assert (output["shape"], output["data"]) == ([3], pytest.approx(told, rel=1e-6))


@pytest.mark.parametrize("model", FORMATS)
def test_unsuitable_inputs_are_rejected(model, server):
    for wrong in ([tensor([1, 3], ["a", "b", "c"], "BYTES")], [tensor([1, 2], [1, 2])], []):
        answer = ask(server, model, *wrong)
        if answer.status == 200:
            # A tree may never use a missing column.
            assert model in ("DecisionTree", "GradientBoostedTrees", "RandomForest")
            continue
        assert answer.status == 400, answer.body
        assert "Traceback" not in answer.json()["error"]
        assert "\n" not in answer.json()["error"]
    x = tensor([3], ASKED[0])
    assert ask(server, model, x, x | {"name": "y"}).json() == {
        "error": "MLlibModel only supports a single input tensor (2 were received)"
    }


def test_failed_load_reports_the_reason(tmp_path):
    need("mllib")
    for name, parameters in {
        "untold": {"uri": "."},
        "unknown": {"uri": ".", "format": "Magic"},
        "missing": {"uri": "./nope", "format": "SVM"},
        "empty": {"uri": ".", "format": "SVM"},
    }.items():
        (tmp_path / name).mkdir()
        text = {"name": name, "implementation": IMPLEMENTATION, "parameters": parameters}
        (tmp_path / name / "model-settings.json").write_text(json.dumps(text))
    found = reasons(tmp_path, sys.executable)
    assert found["untold"].startswith(
        "Invalid MLlib format for model untold: `parameters.format` is missing, expected one of"
    )
    assert found["unknown"].startswith(
        "Invalid MLlib format for model unknown: `parameters.format` is `Magic`, expected"
    )
    assert found["missing"] == f"Invalid URI specified for model missing ({tmp_path}/missing/nope)"
    assert found["empty"].startswith(f"cannot load `{tmp_path}/empty`: ")
    assert "\n" not in found["empty"]


def test_example_readme_commands_work(tmp_path):
    need("mllib")
    run_example(tmp_path, "mllib")
