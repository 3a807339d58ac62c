"""Models of a driver's disk on the nodes of a cluster."""

import gzip
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any, List

import pytest
from mlserver._executable import SHIPPED_MODULE, find_executable
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


def test_models_that_do_not_exist_are_named(model: pathlib.Path) -> None:
    assert shipping.as_local_value("s3://models/churn") is None
    found = shipping.as_local_value(str(model))
    assert found is not None
    assert found.name == "churn"
    with pytest.raises(ScoringError, match="cannot read the model `/nowhere`"):
        shipping.as_local_value("/nowhere")


def test_package_archive_can_be_imported(tmp_path: pathlib.Path) -> None:
    archive = shipping.package_archive(str(tmp_path))
    assert shipping.package_archive(str(tmp_path)) == archive
    code = "import mlserver.scoring; print(mlserver.__file__)"
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": archive}, capture_output=True, text=True)
    assert run.stdout.startswith(archive), run.stderr


def test_executables_of_different_content_have_different_names(tmp_path: pathlib.Path) -> None:
    names = set()
    for content in ("one", "two", "one"):
        program = tmp_path / "mlserver"
        program.write_text(content)
        named = shipping.named_executable(str(program), str(tmp_path))
        assert pathlib.Path(named).read_text() == content
        names.add(named)
    assert len(names) == 2
    path = shipping.write_executable("mlserver-1", b"#!/bin/sh\necho ran\n", str(tmp_path))
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "ran\n"


def test_models_of_stores_are_fetched_once(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "mlserver"
    program.write_text(
        '#!/bin/sh\n[ "$3" != s3://b/none ] || { echo "error: nothing there" >&2; exit 1; }\necho "$@" > "$4/model.json"\n'
    )
    program.chmod(0o755)
    path = shipping.snapshot("s3://b/churn", str(program))
    assert pathlib.Path(path).read_text().startswith("pull --quiet s3://b/churn ")
    with pytest.raises(ScoringError, match="nothing there"):
        shipping.snapshot("s3://b/none", str(program))
    for location in ("models/churn", "file:///models/churn", "models:/churn/1"):
        assert shipping.snapshot(location, str(program)) == location


def test_executable_of_a_job_is_unpacked_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / SHIPPED_MODULE
    module.mkdir()
    (module / "__init__.py").write_text("")
    (module / "mlserver.gz").write_bytes(gzip.compress(b"#!/bin/sh\necho ran\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("MLSERVER_BIN", raising=False)
    path = find_executable()
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "ran\n"
    assert find_executable() == path
    assert sorted(entry.name for entry in module.iterdir() if entry.name != "__pycache__") == [
        "__init__.py",
        "mlserver",
        "mlserver.gz",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_process_has_a_temporary_folder_of_its_own() -> None:
    code = """
import os, sys
from mlserver._scoring import shipping
mine = shipping.temporary_folder()
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(write, shipping.temporary_folder().encode())
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
forked = os.read(read, 4096).decode()
print(mine, os.path.isdir(mine), forked, os.path.isdir(forked))
"""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(shipping.__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    mine, is_there, forked, forked_is_there = run.stdout.split()
    assert mine != forked
    assert (is_there, forked_is_there) == ("True", "False")
    assert not os.path.exists(mine), "its own process removes it"
