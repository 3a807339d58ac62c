"""`mlserver pull` from S3 (moto) and Azure (Azurite)."""

import io
import os
import tarfile

from conftest import SECRET, content, pull

NAMES = ["a b.txt", "a+b.txt", "100%.txt", "c%20d.txt", "e#f.txt", "ü/ß.txt", "deep/er/still.bin"]


def test_folders_are_fetched_with_the_names_of_their_objects(store, prefix, tmp_path):
    files = {name: f"content of {name}".encode() for name in NAMES}
    files["pkg/__init__.py"] = b""
    for name, data in files.items():
        store.put(f"{prefix}/m/{name}", data)
    store.put(f"{prefix}/m-old/other.txt", b"not selected")
    store.put(f"{prefix}/m/empty", b"")
    printed = pull(store.uri(f"{prefix}/m"), tmp_path / "out", **store.variables())
    assert content(tmp_path / "out") == files
    assert f"Fetched {len(files)} files of" in printed
    listed = pull("--list", store.uri(f"{prefix}/m/"), **store.variables())
    assert sorted(line.split("\t")[1] for line in listed.splitlines()) == sorted(files)


def test_one_object_is_fetched_alone(store, prefix, tmp_path):
    store.put(f"{prefix}/model.json", b"{}")
    store.put(f"{prefix}/model.json.bak", b"not selected")
    store.put(f"{prefix}/e#f.json", b"[]")
    pull(store.uri(f"{prefix}/model.json"), tmp_path, store.uri(f"{prefix}/e%23f.json"), tmp_path, **store.variables())
    assert content(tmp_path) == {"model.json": b"{}", "e#f.json": b"[]"}


def test_large_objects_are_fetched_in_parts(store, prefix, tmp_path):
    data = os.urandom((40 << 20) + 12345)
    store.put(f"{prefix}/large.bin", data)
    pull(store.uri(f"{prefix}/large.bin"), tmp_path, **store.variables())
    assert (tmp_path / "large.bin").read_bytes() == data


def test_many_objects_are_listed_in_pages(s3, prefix, tmp_path):
    for number in range(1200):
        s3.put(f"{prefix}/{number:04}", str(number).encode())
    pull(s3.uri(prefix), tmp_path, "--concurrency", "8", **s3.variables())
    assert content(tmp_path) == {f"{number:04}": str(number).encode() for number in range(1200)}


def test_missing_keys_name_their_neighbours(store, prefix, tmp_path):
    store.put(f"{prefix}/churn-new/m", b"1")
    store.put(f"{prefix}/iris/m", b"1")
    printed = pull(store.uri(f"{prefix}/churn"), tmp_path, code=1, **store.variables())
    assert f"no object has the key `{prefix}/churn`" in printed
    assert printed.strip().endswith("the bucket has churn-new/, iris/")


def test_patterns_choose_files(s3, prefix, tmp_path):
    for name in ["model.safetensors", "model.bin", "config.json", "onnx/model.onnx"]:
        s3.put(f"{prefix}/{name}", b"x")
    pull(s3.uri(prefix), tmp_path, "--include", "*.json", "--include", "*.safetensors", **s3.variables())
    assert sorted(content(tmp_path)) == ["config.json", "model.safetensors"]
    printed = pull(s3.uri(prefix), tmp_path / "x", "--exclude", "*", code=1, **s3.variables())
    assert "leave none of its 4 files" in printed


def test_exit_codes_say_whether_all_models_are_there(s3, prefix, tmp_path):
    s3.put(f"{prefix}/a/m", b"1")
    pairs = [s3.uri(f"{prefix}/a"), tmp_path / "a", s3.uri(f"{prefix}/none"), tmp_path / "b"]
    assert "1 of 2 models were not fetched" in pull(*pairs, code=4, **s3.variables())
    pull(*pairs[2:], s3.uri(f"{prefix}/no"), tmp_path, code=1, **s3.variables())
    assert "expected pairs" in pull(*pairs[:3], code=2, **s3.variables())
    assert "unsupported scheme `ftp`" in pull("ftp://h/m", tmp_path, code=1)
    assert "HDFS is not supported" in pull("hdfs://h/m", tmp_path, code=1)


def test_missing_rights_name_the_source_of_the_credentials(azure, prefix, tmp_path):
    azure.put(f"{prefix}/m", b"1")
    endpoint = azure.client.url.rstrip("/")
    account = {"AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1", "AZURE_STORAGE_ENDPOINT": endpoint}
    printed = pull(azure.uri(prefix), tmp_path, code=1, **account)
    assert "access denied with no credentials (anonymous)" in printed
    wrong = pull(azure.uri(prefix), tmp_path, code=1, AZURE_STORAGE_ACCESS_KEY="aHVzaA==", **account)
    assert "access denied with `AZURE_STORAGE_ACCESS_KEY`" in wrong and "aHVzaA" not in wrong


def archive(*entries):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in entries:
            entry = tarfile.TarInfo(name)
            if text is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(entry)
            else:
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text))
    return data.getvalue()


def test_archives_are_unpacked(s3, prefix, tmp_path):
    s3.put(f"{prefix}/m.tar.gz", archive(("model/a.json", b"{}"), ("b.txt", b"B")))
    pull(s3.uri(f"{prefix}/m.tar.gz"), tmp_path, **s3.variables())
    assert content(tmp_path) == {"model/a.json": b"{}", "b.txt": b"B"}


def test_hostile_keys_and_archives_write_nothing_outside(s3, prefix, tmp_path):
    inside = tmp_path / "in"
    s3.put(f"{prefix}/up.tgz", archive(("../outside", b"x")))
    s3.put(f"{prefix}/link.tgz", archive(("link", None)))
    s3.put(f"{prefix}/bomb.tgz", archive(*[(f"{number}", bytes(4 << 20)) for number in range(40)]))
    for name, reason in [("up", "leads out"), ("link", "leads out of the folder"), ("bomb", "may unpack to")]:
        assert reason in pull(s3.uri(f"{prefix}/{name}.tgz"), inside, code=1, **s3.variables())
    s3.put(f"{prefix}/keys/a\\b", b"x")
    assert "contains a backslash" in pull(s3.uri(f"{prefix}/keys"), inside, code=1, **s3.variables())
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert all(path.name == ".mlserver-pull" for path in inside.iterdir())


def test_models_above_the_limit_are_not_fetched(s3, prefix, tmp_path):
    s3.put(f"{prefix}/m.bin", bytes(2000))
    printed = pull(s3.uri(prefix), tmp_path, code=1, MLSERVER_STORAGE_MAX_BYTES="1000", **s3.variables())
    assert "it selects 2000 bytes, but `storage_max_bytes` is 1000" in printed
    assert content(tmp_path) == {}


def test_paths_of_this_machine_are_linked(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/model.json").write_text("{}")
    pull(f"file://{tmp_path}/from", tmp_path / "to")
    assert (tmp_path / "to/model.json").is_symlink()
    assert (tmp_path / "to/model.json").read_text() == "{}"


def test_remotes_of_rclone_are_stores(s3, prefix, tmp_path):
    """As Seldon describes stores: by the name of a remote, also one that is called as a scheme."""
    s3.put(f"{prefix}/m.bin", b"1")
    keys = {"TYPE": "s3", "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": SECRET, "ENDPOINT": f"http://127.0.0.1:{s3.port}"}
    for name, uri in [("S3", "s3://models/"), ("MINIO", "minio:models/"), ("MY_STORE", "my-store://models/")]:
        variables = {f"RCLONE_CONFIG_{name}_{key}": value for key, value in keys.items()}
        pull(uri + prefix, tmp_path / name, AWS_ENDPOINT_URL="http://127.0.0.1:1", **variables)
        assert content(tmp_path / name) == {"m.bin": b"1"}
    other = pull("x:models/m", tmp_path, code=1, RCLONE_CONFIG_X_TYPE="sftp")
    assert "the type `sftp` is not supported" in other
