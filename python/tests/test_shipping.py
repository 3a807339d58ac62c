"""Models of a driver's disk on the nodes of a cluster."""

import pathlib
import threading
from typing import Any, List

import pytest
from mlserver._scoring import shipping
from mlserver.errors import ScoringError


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "churn"
    (folder / "data").mkdir(parents=True)
    (folder / "MLmodel").write_text("flavors: {}")
    (folder / "data" / "model.bin").write_bytes(b"\x00\x01")
    return folder


def test_model_is_the_same_on_a_node(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    value = shipping.as_value(str(model))
    file, path = shipping.as_file(str(model), str(tmp_path))
    assert value.digest == file.digest
    assert value.archive == pathlib.Path(path).read_bytes()
    for number, (shipped, archive) in enumerate([(value, None), (file, path)]):
        root = tmp_path / f"node-{number}"
        root.mkdir()
        found = pathlib.Path(shipping.unpack(shipped, str(root), archive))
        assert (found / "data" / "model.bin").read_bytes() == b"\x00\x01"
        (found / "MLmodel").write_text("kept")
        assert shipping.unpack(shipped, str(root), archive) == str(found)
        assert (found / "MLmodel").read_text() == "kept", "it is unpacked once"
        assert [entry.name for entry in root.iterdir()] == [f"mlserver-{value.digest}"]


def test_file_of_mlflow_travels_with_its_folder(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    found = pathlib.Path(shipping.unpack(shipping.as_value(str(model / "MLmodel")), str(tmp_path)))
    assert found.name == "MLmodel"
    assert (found.parent / "data" / "model.bin").exists()


def test_processes_that_unpack_at_once_agree(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    value = shipping.as_value(str(model))
    found: List[Any] = []
    threads = [threading.Thread(target=lambda: found.append(shipping.unpack(value, str(tmp_path)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".mlserver-")]


def test_models_that_cannot_travel_are_named(model: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipping.ship_in_closure("s3://models/churn") is None
    with pytest.raises(ScoringError, match="cannot read the model `/nowhere`"):
        shipping.ship_in_closure("/nowhere")
    monkeypatch.setattr(shipping, "CLOSURE_BYTES", 1)
    with pytest.raises(ScoringError, match="put it into an object store"):
        shipping.ship_in_closure(str(model))
