"""`mlserver.lock`: no other files than those that it names are fetched or served."""

import hashlib
import json

import pytest
from conftest import MODEL, PATIENCE, content, pull, serving, wait_until, write_settings
from test_stores import archive


@pytest.fixture
def locked(s3, prefix, tmp_path):
    """A folder of two files, fetched with `--lock`."""
    s3.put(f"{prefix}/model.json", MODEL.read_bytes())
    s3.put(f"{prefix}/sub/notes.txt", b"notes")
    folder = tmp_path / "models"
    pull("--lock", s3.uri(prefix), folder, **s3.variables())
    return folder


def test_locks_name_the_files_that_were_fetched(locked):
    lock = json.loads((locked / "mlserver.lock").read_text())
    expected = [
        {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in [("model.json", MODEL.read_bytes()), ("sub/notes.txt", b"notes")]
    ]
    assert lock == {"version": 1, "files": expected}


def test_other_objects_are_not_fetched(s3, prefix, locked, tmp_path):
    before = content(locked)

    def refused(message):
        assert message in pull(s3.uri(prefix), locked, code=1, **s3.variables())
        assert {name: data for name, data in content(locked).items() if ".mlserver-pull" not in name} == before

    pull(s3.uri(prefix), locked, **s3.variables())
    s3.put(f"{prefix}/sub/notes.txt", b"other")
    refused(f"does not have the SHA-256 {hashlib.sha256(b'notes').hexdigest()} that `mlserver.lock` has for it")
    s3.put(f"{prefix}/sub/notes.txt", b"longer notes")
    refused("`sub/notes.txt` has 12 bytes, not the 5 in `mlserver.lock`")
    s3.put(f"{prefix}/sub/notes.txt", b"notes")
    s3.put(f"{prefix}/evil.pkl", b"x")
    refused("`evil.pkl` is not named in `mlserver.lock`")
    s3.client.delete_object(Bucket=s3.bucket, Key=f"{prefix}/evil.pkl")
    s3.client.delete_object(Bucket=s3.bucket, Key=f"{prefix}/sub/notes.txt")
    refused("`sub/notes.txt` does not exist, but is named in `mlserver.lock`")
    # A change that is intended.
    s3.put(f"{prefix}/sub/notes.txt", b"other")
    pull("--lock", s3.uri(prefix), locked, **s3.variables())
    pull(s3.uri(prefix), locked, **s3.variables())
    assert (locked / "sub/notes.txt").read_bytes() == b"other"


def test_locks_of_the_store_are_not_fetched(s3, prefix, tmp_path):
    s3.put(f"{prefix}/model.json", b"{}")
    s3.put(f"{prefix}/mlserver.lock", b"{}")
    pull(s3.uri(prefix), tmp_path, **s3.variables())
    assert content(tmp_path) == {"model.json": b"{}"}


def test_archives_are_locked_with_their_content(s3, prefix, tmp_path):
    s3.put(f"{prefix}/m.tgz", archive(("a.json", b"{}"), ("sub/b", b"B")))
    pull("--lock", s3.uri(f"{prefix}/m.tgz"), tmp_path, **s3.variables())
    lock = json.loads((tmp_path / "mlserver.lock").read_text())
    assert lock["archive"]["path"] == "m.tgz" and [file["path"] for file in lock["files"]] == ["a.json", "sub/b"]
    pull(s3.uri(f"{prefix}/m.tgz"), tmp_path, **s3.variables())
    s3.put(f"{prefix}/m.tgz", archive(("a.json", b"[]"), ("sub/b", b"B")))
    assert "`mlserver.lock`" in pull(s3.uri(f"{prefix}/m.tgz"), tmp_path, code=1, **s3.variables())
    assert (tmp_path / "a.json").read_bytes() == b"{}"


def refuses(folder, message, **variables):
    with serving(folder, **variables) as server:
        assert server.process.wait(PATIENCE) == 1
        assert message in server.log.read_text()


def test_changed_folders_are_not_served(locked):
    write_settings(locked, "./model.json")
    with serving(locked) as server:
        wait_until(server.is_ready, "the model", server.process)
    (locked / "model.json").write_bytes(MODEL.read_bytes().replace(b"0", b"1"))
    refuses(locked, "in `mlserver.lock`; if the change is intended, write it again with `mlserver pull --lock`")


def test_changed_files_without_settings_are_not_served(locked):
    (locked / "sub/notes.txt").unlink()
    refuses(locked / "model.json", "`sub/notes.txt` does not exist, but is named in `mlserver.lock`")


def test_locks_beside_settings_hold_for_fetched_models(s3, prefix, locked, tmp_path):
    """The lock is copied to the settings of a model whose files stay in the bucket."""
    folder = tmp_path / "remote"
    write_settings(folder, s3.uri(prefix))
    (folder / "mlserver.lock").write_bytes((locked / "mlserver.lock").read_bytes())
    variables = {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache"), **s3.variables()}
    with serving(folder, **variables) as server:
        wait_until(server.is_ready, "the model", server.process)
    # What others wrote into the cache is found, too.
    [model] = (tmp_path / "cache").rglob("model.json")
    model.write_bytes(MODEL.read_bytes().replace(b"0", b"1"))
    refuses(folder, "`model.json` has the SHA-256", **variables)
    model.write_bytes(MODEL.read_bytes())
    s3.put(f"{prefix}/evil.pkl", b"x")
    refuses(folder, "`evil.pkl` is not named in `mlserver.lock`", **variables)


def test_links_are_not_locked(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/model.json").write_text("{}")
    printed = pull("--lock", f"file://{tmp_path}/from", tmp_path / "to", code=1)
    assert "`--lock` is for fetched files" in printed
