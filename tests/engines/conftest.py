"""Models of several libraries, rows with missing values, and Spark in processes of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
FEATURES = ["age", "income", "visits"]
IMPLEMENTATIONS = {
    "xgboost": "mlserver_xgboost.XGBoostModel",
    "lightgbm": "mlserver_lightgbm.LightGBMModel",
    "pipeline": "mlserver_sklearn.SKLearnModel",
}
DATATYPES = {"double": "FP64", "float": "FP32", "string": "BYTES"}
NUMPY_TYPES = {"FP64": np.float64, "FP32": np.float32, "INT64": np.int64, "BYTES": object}
# How many rows are compared with the answers of `mlserver infer`. CONTRIBUTING.md names a larger number.
ROWS = int(os.environ.get("MLSERVER_TEST_ROWS", "20000"))
# How long to wait for anything before failing, in seconds: engines start slowly beside other jobs.
PATIENCE = 120

# The package of this repository, for the workers of engines, too.
# All processes that the tests start carry this text in their environment.
RUN = os.environ["MLSERVER_TEST_RUN"] = uuid.uuid4().hex
os.environ["MLSERVER_BIN"] = str(BINARY)
os.environ["PYTHONPATH"] = str(ROOT / "python")
sys.path.insert(0, str(ROOT / "python"))

from mlserver._scoring import processes as scoring_processes


def numbers(rows, seed=3):
    """Returns columns in which values are missing, as NaN and as null, with a dictionary of texts and columns to keep."""
    random = np.random.default_rng(seed)
    age = random.normal(40, 12, rows)
    income = random.gamma(2, 900, rows).astype(np.float32)
    visits = random.integers(0, 50, rows)
    missing = random.random((3, rows)) < 0.05
    # Parquet's and Arrow's nulls, and NaN that is no null.
    age[random.random(rows) < 0.01] = np.nan
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "age": pa.array(age, mask=missing[0]),
            "income": pa.array(income, mask=missing[1]),
            "visits": pa.array(visits, pa.int32(), mask=missing[2]),
            "city": pa.array(random.choice(["Bern", "Köln", "Oslo", ""], rows)).dictionary_encode(),
            "note.of": pa.array([f"row {row}" if row % 7 else None for row in range(rows)]),
        }
    )


@pytest.fixture(scope="session")
def table():
    return numbers(ROWS)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder of models: `xgboost`, `lightgbm` and `pipeline`."""
    folder = tmp_path_factory.mktemp("models")
    train = numbers(2_000, seed=5).to_pandas()
    x = train[FEATURES].astype(float)
    y = ((x["age"].fillna(0) + x["visits"].fillna(0)) > 60).astype(int)
    (folder / "xgboost").mkdir()
    xgboost.XGBClassifier(n_estimators=20, max_depth=4).fit(x, y).save_model(folder / "xgboost/model.json")
    (folder / "lightgbm").mkdir()
    lightgbm.LGBMRegressor(n_estimators=20, verbose=-1).fit(x, y).booster_.save_model(folder / "lightgbm/model.bst")
    (folder / "pipeline").mkdir()
    encoder = ColumnTransformer([("city", OneHotEncoder(handle_unknown="ignore"), ["city"])], remainder="passthrough")
    pipeline = make_pipeline(encoder, RandomForestClassifier(10, max_depth=5, random_state=0))
    frame = train[["city", *FEATURES]].astype({"city": str, "visits": float, "income": float}).fillna(0)
    labels = np.where(y, "high", "low")
    joblib.dump(pipeline.fit(frame, labels), folder / "pipeline/model.joblib")
    for name, implementation in IMPLEMENTATIONS.items():
        settings = {"name": name, "implementation": implementation}
        (folder / name / "model-settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """Returns a function that gives the answers of `mlserver infer --embedded`: an array for each output."""

    def answers(model, table, columns, outputs=(), model_name=None, matrix=None):
        folder = tmp_path_factory.mktemp("infer")
        selected = table.select(columns)
        # Integers with missing values are FP64. CSV has no dictionaries.
        fields = []
        for field in selected.schema:
            kind = pa.float64() if pa.types.is_integer(field.type) else field.type
            fields.append(field.with_type(pa.string() if pa.types.is_dictionary(kind) else kind))
        selected = selected.cast(pa.schema(fields))
        command = [BINARY, "infer", "--embedded", model, "-o", "answers.jsonl", "--quiet"]
        if matrix:
            # The name of the only input: the columns are one tensor.
            datatype = DATATYPES[str(fields[0].type)]
            with open(folder / "rows.jsonl", "w") as file:
                for row in zip(*selected.to_pydict().values()):
                    tensor = {"name": matrix, "shape": [1, len(row)], "datatype": datatype, "data": row}
                    file.write(json.dumps({"inputs": [tensor]}) + "\n")
            command += ["-i", "rows.jsonl"]
        else:
            pa.csv.write_csv(selected, folder / "rows.csv")
            command += ["-i", "rows.csv"]
            for field in fields:
                command += ["--column-type", f"{field.name}={DATATYPES[str(field.type)]}"]
        if outputs:
            command += ["--outputs", ",".join(outputs)]
        if model_name:
            command += ["--model-name", model_name]
        run = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        lines = [json.loads(line)["outputs"] for line in (folder / "answers.jsonl").read_text().splitlines()]
        found = {}
        for place, output in enumerate(lines[0]):
            values = np.array([line[place]["data"] for line in lines], NUMPY_TYPES[output["datatype"]])
            found[output["name"]] = values[:, 0] if values.shape[1] == 1 else values
        return found

    return answers


def same_bits(found, wanted):
    """Reports whether two columns of numbers have the same bits; NaN equals NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    return found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def wait_until(question, what):
    end = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < end, f"{what} did not happen in {PATIENCE} s"
        time.sleep(0.1)


def processes(*words):
    """Returns the ids of the processes of this run whose command line has all of these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if (
                all(any(word in part for part in command) for word in words)
                and RUN.encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def scoring_children():
    """Returns the ids of the child processes of scorers."""
    return processes(str(BINARY), "score")


def wait_for_end_of_children():
    """Ends the children of this process, and waits until the workers have none either."""
    scoring_processes._end_all()
    wait_until(lambda: not scoring_children(), "the end of all children")


JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory):
    """A home of Spark.

    Executors write into it, and that of the package is inside of `site-packages`: a home of links keeps that tidy.
    """
    import pyspark

    home = tmp_path_factory.mktemp("spark")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@pytest.fixture(scope="session")
def spark(spark_home):
    """A session whose two executors are processes."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "700m",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.sql.shuffle.partitions": "4",
        "spark.deploy.maxExecutorRetries": "20",
    }
    variables = {"SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LAUNCHER_OPTS": JAVA}
    os.environ.update(variables, PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    wait_until(
        lambda: not processes("mlserver", "score") and not processes("CoarseGrainedExecutorBackend"), "the end of all"
    )


def store_bytes():
    """Returns the size of the object store of a Ray node: jobs with `ship=True` put the executable there.

    One with debug information has several hundred MB, and without room for it Ray would write it to the disk. There is room for
    two, because that of the test before may not be freed yet.
    """
    return 2 * BINARY.stat().st_size + (100 << 20)


def start_ray(**options):
    """Starts the head of a Ray cluster, and returns it with the address for jobs.

    It gives up if its agents need 15 s, as they may beside other jobs. Then it is started again.
    """
    # - Workers have niceness 15, with which they would not get far beside other jobs.
    # - Ray stores nothing on a disk of which 95% are used. The share that is free says nothing about whether the tests fit:
    #   of 252 GB, 12 GB were free.
    os.environ.update(RAY_worker_niceness="0", RAY_local_fs_capacity_threshold="1")
    from ray.cluster_utils import Cluster

    for attempt in range(4):
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                options["dashboard_port"] = probe.getsockname()[1]
            cluster = Cluster(initialize_head=True, head_node_args={"object_store_memory": store_bytes(), **options})
            return cluster, f"http://127.0.0.1:{options['dashboard_port']}"
        except Exception:
            for pid in [*processes("/ray/core/"), *processes("/ray/dashboard/")]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if attempt == 3:
                raise
    raise AssertionError("unreachable")


@pytest.fixture
def frame(spark, table, tmp_path):
    """The rows as a data frame of several partitions."""
    for part in range(4):
        pq.write_table(table.slice(part * ROWS // 4, ROWS // 4), tmp_path / f"part-{part}.parquet")
    return spark.read.parquet(str(tmp_path))


def sorted_rows(frame):
    """Collects a data frame of Spark, in the order of `id`."""
    return pd.DataFrame(frame.toPandas()).sort_values("id").reset_index(drop=True)
