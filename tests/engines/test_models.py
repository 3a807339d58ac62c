"""Models of the other kinds in Spark: ONNX, MLflow, a class in Python with its environment, and a graph."""

import json
import shutil
import subprocess
import sys
import tarfile

import mlserver.spark
import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, same_bits, sorted_rows

IRIS = ["sepal length", "sepal width", "petal length", "petal width"]
TUMOR = ["radius", "texture", "perimeter", "area", "smoothness"]
ROWS = 600
CLASS = """
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput
import special

class Special(MLModel):
    async def predict(self, payload):
        rows = zip(*(list(each.data) for each in payload.inputs))
        totals = [sum(row) * special.FACTOR for row in rows]
        output = ResponseOutput(name="total", datatype="FP64", shape=[len(totals), 1], data=totals)
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


@pytest.fixture(scope="module")
def flowers():
    """Rows for the models of irises and tumors."""
    random = np.random.default_rng(8)
    columns = {"id": np.arange(ROWS)}
    columns.update({name: random.normal(size, 1.0, ROWS) for name, size in zip(IRIS, (5.8, 3.0, 3.7, 1.2))})
    columns.update({name: random.normal(size, size / 4, ROWS) for name, size in zip(TUMOR, (14, 19, 92, 655, 0.1))})
    return pa.table(columns)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The location of a model of each kind, with the name of the model if there are several."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, implementation, uri in [
        ("onnx", "mlserver_onnx.OnnxModel", "model.onnx"),
        ("mlflow", "mlserver_mlflow.MLflowRuntime", "model"),
    ]:
        source = ROOT / "templates/projects" / name / uri
        (folder / name).mkdir()
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name / uri)
        settings = {"name": name, "implementation": implementation, "parameters": {"uri": f"./{uri}"}}
        (folder / name / "model-settings.json").write_text(json.dumps(settings))
    python = folder / "python"
    python.mkdir()
    (python / "models.py").write_text(CLASS)
    environment = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3.*/site-packages")
    (site / "special.py").write_text("FACTOR = 3")
    with tarfile.open(python / "environment.tar.gz", "w:gz") as archive:
        archive.add(environment, ".")
    settings = {
        "name": "python",
        "implementation": "models.Special",
        "inputs": [{"name": name, "datatype": "FP64", "shape": [-1, 1]} for name in IRIS],
        "parameters": {"environment_tarball": "environment.tar.gz"},
    }
    (python / "model-settings.json").write_text(json.dumps(settings))
    shutil.copytree(ROOT / "examples/graph-ensemble", folder / "graph")
    return folder


@pytest.mark.parametrize(
    ("kind", "columns", "name"),
    [("onnx", IRIS, None), ("mlflow", IRIS, None), ("python", IRIS, None), ("graph", TUMOR, "ensemble")],
)
def test_score_equals_infer(spark, kinds, flowers, embedded, kind, columns, name):
    # ONNX and the graph take one matrix.
    matrix = {"onnx": "measurements", "graph": "measurements"}.get(kind)
    wanted = embedded(kinds / kind, flowers, columns, model_name=name, matrix=matrix)
    frame = spark.createDataFrame(flowers.to_pandas()).repartition(3)
    scored = mlserver.spark.score(frame, kinds / kind, columns=columns, keep="id", model_name=name)
    found = sorted_rows(scored)
    assert list(found.columns) == ["id", *wanted]
    for output, values in wanted.items():
        if values.ndim > 1:
            assert same_bits(np.array(found[output].tolist(), values.dtype), values)
        elif values.dtype == object:
            assert found[output].tolist() == values.tolist()
        else:
            assert same_bits(found[output], values)
