"""`mlserver.ray` on two nodes of one machine."""

import os
import signal
from pathlib import Path

import mlserver.ray
import numpy as np
import pyarrow as pa
import pytest
import ray
from conftest import (
    FEATURES,
    ROWS,
    same_bits,
    scoring_children,
    start_ray,
    store_bytes,
    wait_for_end_of_children,
    wait_until,
)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a CPU each."""
    cluster, _ = start_ray(num_cpus=1)
    cluster.add_node(num_cpus=1, object_store_memory=store_bytes())
    ray.init(address=cluster.address, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    wait_for_end_of_children()


def plain(table):
    """Returns the rows with plain texts in place of dictionaries."""
    place = table.schema.get_field_index("city")
    return table.set_column(place, "city", table["city"].cast(pa.string()))


def sorted_table(dataset):
    return pa.concat_tables(ray.get(dataset.to_arrow_refs())).sort_by("id")


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_score_equals_infer(cluster, models, table, embedded):
    dataset = ray.data.from_arrow([plain(table).slice(start, 5_000) for start in range(0, ROWS, 5_000)])
    outputs = ["predict", "predict_proba"]
    scored = mlserver.ray.score(dataset, models / "xgboost", outputs=outputs, keep=["id"], concurrency=2)
    found = sorted_table(scored)
    wanted = embedded(models / "xgboost", table, FEATURES, outputs)
    assert found.column_names == ["id", *outputs]
    assert found["id"].to_pylist() == list(range(ROWS))
    assert same_bits(found["predict"].to_numpy(), wanted["predict"])
    assert same_bits(np.float32(found["predict_proba"].to_pylist()), wanted["predict_proba"])


def test_failed_rows_are_null_with_their_reason(cluster, models):
    large = (1 << 53) + 1
    rows = pa.table(
        {
            "id": range(6),
            "age": [1.0] * 6,
            "income": [2.0] * 6,
            "visits": pa.array([1, None, large, 4, 5, 6], pa.int64()),
        }
    )
    found = sorted_table(
        mlserver.ray.score(ray.data.from_arrow(rows), models / "lightgbm", errors="column", concurrency=1)
    )
    assert [row for row, reason in enumerate(found["mlserver_error"].to_pylist()) if reason] == [2]
    assert [row for row, value in enumerate(found["predict"].to_pylist()) if value is None] == [2]
    with pytest.raises(Exception, match="would lose digits as FP64"):
        mlserver.ray.score(ray.data.from_arrow(rows), models / "lightgbm", concurrency=1).materialize()


def test_child_that_is_killed_is_replaced(models, table):
    scorer = mlserver.ray.Scorer(str(models / "lightgbm"), keep=["id"])
    wanted = scorer(table)
    # Those of other tests may still wait for further calls.
    killed = {child for child in scoring_children() if parent(child) == os.getpid()}
    assert killed
    for child in killed:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: killed.isdisjoint(scoring_children()), "the end of the children")
    assert scorer(table).equals(wanted)
    assert scorer(table.slice(0, 0)).schema == wanted.schema


def test_large_models_and_the_executable_travel_through_the_object_store(cluster, models, table, embedded, monkeypatch):
    monkeypatch.setattr("mlserver._scoring.shipping.CLOSURE_BYTES", 10)
    dataset = ray.data.from_arrow(plain(table).slice(0, 2_000))
    scored = mlserver.ray.score(dataset, models / "lightgbm", keep=["id"], concurrency=1, ship=True)
    wanted = embedded(models / "lightgbm", table.slice(0, 2_000), FEATURES)["predict"]
    assert same_bits(sorted_table(scored)["predict"].to_numpy(), wanted)


def test_ship_brings_the_package(cluster, models, table, embedded):
    dataset = ray.data.from_arrow(plain(table).slice(0, 2_000))
    # Workers that have no package of their own.
    bare = {"env_vars": {"PYTHONPATH": ""}}
    scored = mlserver.ray.score(dataset, models / "lightgbm", keep=["id"], concurrency=1, ship=True, runtime_env=bare)
    wanted = embedded(models / "lightgbm", table.slice(0, 2_000), FEATURES)["predict"]
    assert same_bits(sorted_table(scored)["predict"].to_numpy(), wanted)
    with pytest.raises(Exception, match="No module named 'mlserver'"):
        mlserver.ray.score(dataset, models / "lightgbm", concurrency=1, runtime_env=bare).materialize()


def test_missing_models_are_named(models):
    with pytest.raises(mlserver.errors.ScoringError, match="cannot read the model"):
        mlserver.ray.score(None, models / "nothing")
