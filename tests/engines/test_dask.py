"""`mlserver.dask` on workers in processes of their own."""

import os
import signal

import dask.dataframe as dd
import mlserver.dask
import pytest
from conftest import FEATURES, same_bits, scoring_children, wait_for_end_of_children, wait_until
from distributed import Client, LocalCluster
from mlserver.errors import InferenceError


@pytest.fixture(scope="module")
def client():
    """Two workers."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client
    wait_for_end_of_children()


@pytest.fixture(scope="module")
def frame(table):
    return dd.from_pandas(table.to_pandas(), npartitions=5)


@pytest.mark.parametrize(("name", "columns"), [("xgboost", FEATURES), ("pipeline", ["city", *FEATURES])])
def test_score_equals_infer(client, frame, models, table, embedded, name, columns):
    outputs = ["predict", "predict_proba"]
    wanted = embedded(models / name, table, columns, outputs)
    scored = mlserver.dask.score(frame, models / name, outputs=outputs, keep=["id"])
    assert list(scored.columns) == ["id", "predict", "predict_proba[0]", "predict_proba[1]"]
    found = scored.compute()
    assert found.index.tolist() == list(range(len(found)))
    assert scored.dtypes["predict_proba[0]"] == found.dtypes["predict_proba[0]"]
    for place in range(2):
        assert same_bits(found[f"predict_proba[{place}]"], wanted["predict_proba"][:, place].copy())
    assert found["predict"].tolist() == wanted["predict"].tolist()


def test_killed_children_are_replaced(client, frame, models):
    scored = mlserver.dask.score(frame, models / "lightgbm", keep=["id"])
    wanted = scored.compute()
    children = scoring_children()
    assert len(children) > 1
    for child in children:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: not scoring_children(), "the end of the children")
    assert scored.compute().equals(wanted)


def test_large_models_travel_as_data_of_the_workers(client, frame, models, table, embedded, monkeypatch):
    monkeypatch.setattr("mlserver._scoring.shipping.CLOSURE_BYTES", 10)
    found = mlserver.dask.score(frame, models / "lightgbm", keep=["id"]).compute()
    assert same_bits(found["predict"], embedded(models / "lightgbm", table, FEATURES)["predict"])


def test_columns_that_do_not_fit_are_rejected_before_the_job(client, frame, models):
    with pytest.raises(InferenceError, match="the data lacks the column `age`"):
        mlserver.dask.score(frame.drop(columns=["age"]), models / "xgboost")
    with pytest.raises(InferenceError, match="the output `predict` of the model has the name of a column"):
        mlserver.dask.score(frame.rename(columns={"city": "predict"}), models / "xgboost")
