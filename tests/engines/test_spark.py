"""`mlserver.spark` on executors in processes of their own."""

import functools
import http.server
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import mlserver.spark
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import BINARY, FEATURES, ROWS, processes, same_bits, scoring_children, sorted_rows
from mlserver.errors import InferenceError, ScoringError
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions

# How many tasks share the Python workers. CONTRIBUTING.md names a larger number.
TASKS = int(os.environ.get("MLSERVER_TEST_TASKS", "200"))


@pytest.mark.parametrize(
    ("name", "columns"), [("xgboost", FEATURES), ("lightgbm", FEATURES), ("pipeline", ["city", *FEATURES])]
)
def test_score_equals_infer(frame, models, table, embedded, name, columns):
    wanted = embedded(models / name, table, columns)["predict"]
    scored = mlserver.spark.score(frame, models / name)
    assert scored.columns == [*frame.columns, "predict"]
    found = sorted_rows(scored)
    assert found["id"].tolist() == list(range(ROWS))
    assert found["note.of"].tolist() == table["note.of"].to_pylist()
    if name == "pipeline":
        assert set(wanted) == {"high", "low"}
        assert found["predict"].tolist() == wanted.tolist()
    else:
        assert same_bits(found["predict"], wanted)
    assert mlserver.spark.metrics(scored)[:2] == (ROWS, 0)
    assert mlserver.spark.metrics(scored).seconds > 0


def test_outputs_of_several_elements_are_arrays(frame, models, table, embedded):
    wanted = embedded(models / "xgboost", table, FEATURES, ["predict", "predict_proba"])
    scored = mlserver.spark.score(frame, models / "xgboost", outputs=["predict", "predict_proba"], keep=["id"])
    assert [kind for _, kind in scored.dtypes] == ["bigint", "bigint", "array<float>"]
    found = sorted_rows(scored)
    assert same_bits(found["predict"], wanted["predict"])
    for place in range(2):
        assert same_bits(np.float32([row[place] for row in found["predict_proba"]]), wanted["predict_proba"][:, place])


def test_columns_are_chosen_kept_and_named(frame, models, table, embedded):
    wanted = embedded(models / "xgboost", table, FEATURES)["predict"]
    renamed = frame.withColumnsRenamed({"age": "person.age", "income": "a b", "visits": "v`c"})
    columns = ["person.age", "a b", "v`c"]
    scored = mlserver.spark.score(renamed, models / "xgboost", columns=columns, keep=["note.of", "person.age", "id"])
    assert scored.columns == ["note.of", "person.age", "id", "predict"]
    assert same_bits(sorted_rows(scored)["predict"], wanted)


def test_arrays_and_vectors_have_all_features_of_a_row(frame, models, table, embedded):
    filled = frame.fillna(0.0, FEATURES).where("age = age")
    wanted = {row["id"]: row["predict"] for row in mlserver.spark.score(filled, models / "lightgbm").collect()}
    vectors = VectorAssembler(inputCols=FEATURES, outputCol="features").transform(filled)
    arrays = filled.withColumn("features", functions.array(*[functions.col(name).cast("double") for name in FEATURES]))
    for kind, wide in (("vector", vectors), ("array", arrays)):
        scored = mlserver.spark.score(wide, models / "lightgbm", columns=["features"])
        assert scored.columns == [*filled.columns, "features", "predict"]
        found = scored.collect()
        assert {row["id"]: row["predict"] for row in found} == wanted, kind
        assert found[0]["features"] == wide.where(functions.col("id") == found[0]["id"]).first()["features"]
    function = mlserver.spark.udf(models / "lightgbm")
    found = arrays.select("id", function("features").alias("predict")).collect()
    assert {row["id"]: row["predict"] for row in found} == wanted
    texts = filled.withColumn("features", functions.array("city"))
    with pytest.raises(InferenceError, match=r"column `features` is array<string>, which models do not take"):
        mlserver.spark.score(texts, models / "lightgbm", columns=["features"])


def test_columns_that_do_not_fit_are_rejected_on_the_driver(frame, models):
    def message(frame, **arguments):
        with pytest.raises(InferenceError) as raised:
            mlserver.spark.score(frame, models / "xgboost", **arguments)
        return str(raised.value)

    assert message(frame.drop("age")).startswith("the data lacks the column `age` that the model expects; it has `id`")
    decimals = frame.withColumn("age", functions.col("age").cast("decimal(9,2)"))
    assert message(decimals).startswith("column `age` is decimal(9,2), which models do not take: cast it")
    taken = frame.withColumnRenamed("city", "predict")
    assert message(taken).startswith("the output `predict` of the model has the name of a column")
    assert "predict" in mlserver.spark.score(taken, models / "xgboost", keep=["id"]).columns
    twice = frame.select("*", functions.col("age"))
    assert message(twice).startswith("there are two columns `age`")
    assert message(frame, keep=["nothing"]).startswith("there is no column `nothing`")
    with pytest.raises(ValueError, match="errors is `drop`"):
        mlserver.spark.score(frame, models / "xgboost", errors="drop")
    with pytest.raises(ScoringError, match=r"/nothing"):
        mlserver.spark.score(frame, models / "nothing")


def test_failed_rows_are_null_with_their_reason(spark, models):
    large = (1 << 53) + 1
    rows = [(row, float(row), 1.0, None if row == 5 else large if row in (3, 700) else row) for row in range(1000)]
    frame = spark.createDataFrame(rows, "id long, age double, income double, visits long").coalesce(1)
    scored = mlserver.spark.score(frame, models / "xgboost", errors="column")
    assert scored.columns[-2:] == ["predict", "mlserver_error"]
    found = sorted_rows(scored)
    failed = found[found["mlserver_error"].notna()]
    assert failed["id"].tolist() == [3, 700]
    assert failed["predict"].isna().all()
    assert failed["mlserver_error"].iloc[0].startswith(f"column `visits`: `{large}` would lose digits as FP64")
    assert found["predict"].notna().sum() == 998
    assert mlserver.spark.metrics(scored)[:2] == (1000, 2)
    with pytest.raises(Exception, match="would lose digits as FP64"):
        mlserver.spark.score(frame, models / "xgboost").collect()


def test_empty_and_small_partitions(spark, frame, models):
    scored = mlserver.spark.score(frame.where("id < 3").repartition(8), models / "xgboost")
    assert sorted(row["id"] for row in scored.collect()) == [0, 1, 2]
    assert mlserver.spark.score(frame.where("id < 0"), models / "xgboost").count() == 0


def test_partitions_without_rows_and_with_one(spark, frame, models, table, embedded):
    few = frame.where("id < 3").select("id", *FEATURES)
    spread = spark.createDataFrame(spark.sparkContext.parallelize(few.orderBy("id").collect(), 8), few.schema)

    def sizes(frame):
        return sorted(len(rows) for rows in frame.rdd.glom().collect())

    outputs = ["predict", "predict_proba"]
    wanted = embedded(models / "xgboost", table.slice(0, 3), FEATURES, outputs)
    for errors in ("raise", "column"):
        scored = mlserver.spark.score(spread, models / "xgboost", outputs=outputs, keep="id", errors=errors)
        assert sizes(spread) == sizes(scored) == [0] * 5 + [1] * 3
        found = sorted_rows(scored)
        assert same_bits(found["predict"], wanted["predict"])
        assert same_bits(np.float32(found["predict_proba"].tolist()), wanted["predict_proba"])
    predict = mlserver.spark.udf(models / "xgboost")
    found = sorted_rows(spread.select("id", predict(*FEATURES).alias("predict")))
    assert same_bits(found["predict"], wanted["predict"])
    empty = spread.where("id < 0")
    assert sizes(empty) == [0] * 8
    assert mlserver.spark.score(empty, models / "xgboost").collect() == []


def test_tasks_of_a_python_worker_share_one_child(spark, models, tmp_path):
    # Writes down the parent of each child that starts.
    program = tmp_path / "mlserver"
    starts = tmp_path / "starts"
    program.write_text(f'#!/bin/sh\n[ "$1" != score ] || echo "$PPID" >> {starts}\nexec {BINARY} "$@"\n')
    program.chmod(0o755)
    rows = spark.range(0, 10 * TASKS, 1, TASKS).selectExpr("id", "id % 90 age", "id * 1.5D income", "id % 50 visits")
    scored = mlserver.spark.score(rows, models / "lightgbm", keep="id", executable=program)
    assert scored.count() == 10 * TASKS
    assert mlserver.spark.metrics(scored).rows == 10 * TASKS
    parents = [int(line) for line in starts.read_text().split()]
    # The driver, and the only Python worker of each of the two executors.
    assert len(parents) == len(set(parents)) == 3
    assert os.getpid() in parents


def test_large_models_travel_as_files(frame, models, table, embedded, monkeypatch):
    monkeypatch.setattr("mlserver._scoring.shipping.CLOSURE_BYTES", 0)
    scored = mlserver.spark.score(frame, models / "lightgbm", keep="id")
    assert same_bits(sorted_rows(scored)["predict"], embedded(models / "lightgbm", table, FEATURES)["predict"])


def test_udf_equals_infer(spark, frame, models, table, embedded):
    wanted = embedded(models / "xgboost", table, FEATURES, ["predict", "predict_proba"])
    function = mlserver.spark.udf(models / "xgboost", output="predict_proba")
    columns = [functions.col(name) for name in FEATURES]
    found = sorted_rows(
        frame.select(
            "id", function(*columns).alias("p"), function(functions.struct("visits", "age", "income")).alias("s")
        )
    )
    for name in ("p", "s"):
        assert same_bits(np.float32([row[1] for row in found[name]]), wanted["predict_proba"][:, 1])
    spark.udf.register("churn", mlserver.spark.udf(models / "xgboost"))
    frame.createOrReplaceTempView("people")
    found = sorted_rows(spark.sql("SELECT id, churn(age, income, visits) AS predict FROM people"))
    assert same_bits(found["predict"], wanted["predict"])


def connect(function, folder, model, closure_bytes=64 << 20):
    """Scores `rows.parquet` of a folder with a function of `connect_session`, and returns what it printed."""
    code = f"""
import sys, connect_session, mlserver._scoring.shipping
mlserver._scoring.shipping.CLOSURE_BYTES = {closure_bytes}
connect_session.{function}(*sys.argv[1:])
"""
    command = [sys.executable, "-c", code, folder / "rows.parquet", model, folder / "scores"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_SUBMIT"))}
    variables["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
    variables["PYSPARK_PYTHON"] = sys.executable
    run = subprocess.run([str(part) for part in command], env=variables, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.mark.parametrize("closure_bytes", [64 << 20, 0])
def test_spark_connect_equals_infer(models, table, embedded, tmp_path, closure_bytes):
    pq.write_table(table, tmp_path / "rows.parquet")
    assert "without Spark Connect" in connect("main", tmp_path, models / "lightgbm", closure_bytes)
    found = pq.read_table(tmp_path / "scores").sort_by("id")
    assert found.column_names == ["id", "note.of", "predict", "mlserver_error"]
    assert found["note.of"].to_pylist() == table["note.of"].to_pylist()
    assert same_bits(found["predict"].to_numpy(), embedded(models / "lightgbm", table, FEATURES)["predict"])


def test_spark_connect_scores_vectors(models, table, embedded, tmp_path):
    # An assembler takes neither nulls nor NaN.
    filled = table.select(["id"])
    for name in FEATURES:
        values = pc.fill_null(table[name].cast(pa.float64()), 0.0)
        filled = filled.append_column(name, pc.if_else(pc.is_nan(values), 0.0, values))
    pq.write_table(filled, tmp_path / "rows.parquet")
    connect("vectors", tmp_path, models / "lightgbm")
    found = pq.read_table(tmp_path / "scores").sort_by("id")
    assert found["id"].to_pylist() == list(range(ROWS))
    assert same_bits(found["predict"].to_numpy(), embedded(models / "lightgbm", filled, FEATURES)["predict"])


def test_killed_processes_do_not_change_the_output(spark, frame, models):
    wide = frame.crossJoin(spark.range(20).withColumnRenamed("id", "copy")).repartition(24)
    scored = mlserver.spark.score(wide, models / "xgboost", outputs=["predict_proba"], keep=["id", "copy"])
    checksum = functions.sum(functions.hash("id", "copy", "predict_proba").cast("long"))
    wanted = scored.agg(functions.count("*"), checksum).collect()
    done, killed = threading.Event(), []

    def kill():
        kinds = [
            scoring_children,
            lambda: processes("pyspark.daemon"),
            lambda: processes("CoarseGrainedExecutorBackend"),
        ]
        for number in range(6):
            if done.wait(0.7):
                return
            found = kinds[number % 3]()
            if found:
                os.kill(random.choice(found), signal.SIGKILL)
                killed.append(number % 3)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        assert scored.agg(functions.count("*"), checksum).collect() == wanted
    finally:
        done.set()
        thread.join()
    assert {0, 1} <= set(killed), "the job was too short"


def test_ship_brings_the_executable(spark, frame, models, table, embedded):
    scored = mlserver.spark.score(frame, models / "lightgbm", keep="id", ship=True)
    assert same_bits(sorted_rows(scored)["predict"], embedded(models / "lightgbm", table, FEATURES)["predict"])
    # The children of the executors run the copy that has come with the session.
    assert processes("/work/app-", "/mlserver-", "score")


def test_model_of_a_store_is_the_same_for_all_tasks(frame, models, table, embedded, tmp_path):
    refused = subprocess.run([BINARY, "pull", "http://127.0.0.1:9/x", tmp_path], capture_output=True, text=True).stderr
    if "feature `storage`" in refused:
        pytest.skip("the executable has no feature `storage`, which .ci/run builds")
    served = tmp_path / "served"
    served.mkdir()
    shutil.copy(models / "lightgbm/model.bst", served / "model.bst")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=served)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        location = f"http://127.0.0.1:{server.server_address[1]}/model.bst"
        scored = mlserver.spark.score(frame, location, columns=FEATURES, keep="id")
        # The driver has its copy.
        (served / "model.bst").unlink()
        assert same_bits(sorted_rows(scored)["predict"], embedded(models / "lightgbm", table, FEATURES)["predict"])
        with pytest.raises(ScoringError, match=r"model\.bst"):
            mlserver.spark.score(frame, location, columns=FEATURES)
        server.shutdown()
