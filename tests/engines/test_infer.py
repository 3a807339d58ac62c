"""`mlserver infer --engine`, with real spark-submit and `ray job submit`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import BINARY, FEATURES, JAVA, processes, same_bits, start_ray, wait_until

ROWS = 3_000
#: A visit that is not exact as FP64, in a column with missing values.
LARGE = (1 << 53) + 1


@pytest.fixture
def files(table, tmp_path):
    """Two files of rows, of which the one with `id` 7 cannot be scored."""
    rows = table.slice(0, ROWS).drop_columns(["city"])
    place = rows.schema.get_field_index("visits")
    visits = rows["visits"].cast(pa.int64()).to_pylist()
    visits[7], visits[8] = LARGE, None
    rows = rows.set_column(place, "visits", pa.array(visits, pa.int64()))
    rows = rows.append_column("day", pa.array([f"d{row % 2}" for row in range(ROWS)]))
    (tmp_path / "in").mkdir()
    pq.write_table(rows.slice(0, 2_000), tmp_path / "in/one 1.parquet")
    pq.write_table(rows.slice(2_000), tmp_path / "later.parquet")
    return tmp_path


def infer(folder, variables, *arguments):
    """Runs a command without the package and the executable of the tests, and returns its exit and summary."""
    names = ("MLSERVER_BIN", "PYTHONPATH", "SPARK_", "PYSPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    command = [BINARY, "infer", "--summary", "json", *arguments]
    run = subprocess.run(
        [str(word) for word in command], cwd=folder, env={**environment, **variables}, capture_output=True, text=True
    )
    assert run.stdout, run.stderr[-4000:]
    return run.returncode, json.loads(run.stdout), run.stderr


def scores(folder):
    """Returns the rows of an output, in the order of `id`."""
    return pq.ParquetDataset(folder).read().sort_by("id")


def check(found, models, table, embedded):
    """Compares the predictions of an output, whose row 7 has failed."""
    wanted = embedded(models / "lightgbm", table.slice(0, found.num_rows), FEATURES)["predict"]
    assert found["id"].to_pylist() == list(range(found.num_rows))
    assert [row for row, reason in enumerate(found["mlserver_error"].to_pylist()) if reason] == [7]
    assert found["predict"][7].as_py() is None
    # Row 8 has no visits here.
    rows = [row for row in range(found.num_rows) if row not in (7, 8)]
    assert same_bits(found["predict"].take(rows).to_numpy(), wanted[rows])


def test_spark_submit_scores_partitions_and_resumes(spark_home, files, models, table, embedded):
    variables = {
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # Executors in processes of their own, which have neither the package nor the executable.
    cluster = ["--master=local-cluster[2,1,1024]", "--conf=spark.executor.memory=700m", "--driver-memory=700m"]
    local = ["--master=local[2]", "--driver-memory=700m"]
    quiet = ["--conf=spark.ui.enabled=false", "--conf=spark.driver.host=127.0.0.1"]
    job = ["--engine", "spark", "-m", models / "lightgbm", "-o", "out", "--keep", "id,note.of", "--partition-by", "day"]

    def run(master, *arguments):
        return infer(files, variables, *job, *arguments, *(f"--engine-arg={word}" for word in [*master, *quiet]))

    code, summary, log = run(cluster, "-i", "in/")
    assert code == 4, log[-4000:]
    assert (summary["rows"], summary["answered"], summary["failed"]) == (2_000, 1_999, 1)
    assert summary["exit_code"] == 4 and "1 of 2000 rows failed" in summary["error"]
    assert summary["seconds"] > 0 and summary["prediction_seconds"] > 0
    found = scores(files / "out")
    assert found.column_names == ["id", "note.of", "source_file", "predict", "mlserver_error", "day"]
    assert {Path(name).name for name in found["source_file"].to_pylist()} == {"one%201.parquet"}
    check(found, models, table, embedded)

    code, summary, _ = run(local, "-i", "in/")
    assert (code, summary["rows"]) == (1, 0)
    assert "the output `out` exists" in summary["error"]

    code, summary, log = run(local, "-i", "in/", "-i", "later.parquet", "--resume")
    assert code == 4, log[-4000:]
    assert (summary["rows"], summary["failed"], summary["resumed"]) == (ROWS, 1, 2_000)
    check(scores(files / "out"), models, table, embedded)
    wait_until(lambda: not processes("score") and not processes("SparkSubmit"), "the end of all processes of the jobs")


@pytest.fixture
def ray_jobs(monkeypatch):
    """The address of a Ray cluster of one node that takes jobs, in processes of its own."""
    # Workers run `python`, and have neither the package nor the executable of the tests.
    for name in ("MLSERVER_BIN", "PYTHONPATH"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    cluster, address = start_ray(num_cpus=2, include_dashboard=True)
    try:
        wait_until(lambda: _takes_jobs(address), "the start of Ray's dashboard")
        yield address
    finally:
        cluster.shutdown()


def _takes_jobs(address):
    command = ["ray", "job", "list", f"--address={address}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_ray_job_scores_and_resumes(ray_jobs, files, models, table, embedded):
    def run(*arguments):
        job = ["--engine", "ray", "-m", models / "lightgbm", "-o", files / "out", "--keep", "id"]
        return infer(files, {}, *job, f"--engine-arg=--address={ray_jobs}", *arguments)

    code, summary, log = run("-i", files / "in")
    assert code == 4, log[-4000:]
    assert (summary["rows"], summary["answered"], summary["failed"]) == (2_000, 1_999, 1)
    found = scores(files / "out")
    assert found.column_names == ["id", "source_file", "predict", "mlserver_error"]
    check(found, models, table, embedded)
    code, summary, log = run("-i", files / "in", "-i", files / "later.parquet", "--resume")
    assert code == 4, log[-4000:]
    assert (summary["rows"], summary["failed"], summary["resumed"]) == (ROWS, 1, 2_000)
    check(scores(files / "out"), models, table, embedded)
    assert not [entry for entry in (files / "out").iterdir() if entry.name.startswith("_")]
