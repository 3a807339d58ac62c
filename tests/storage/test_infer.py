"""`mlserver infer` on objects of S3 (moto): read by ranges, written as complete objects only, continued after a kill."""

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import AZURITE_KEY, BINARY, PATIENCE, ROOT, SECRET, environment, wait_until, write_settings

MODEL = ROOT / "examples/quickstart/iris-xgboost"
COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]


def parquet(rows, seed, **options):
    values = np.random.default_rng(seed).uniform(0.1, 8, (len(COLUMNS), rows)).round(3)
    data = io.BytesIO()
    pq.write_table(pa.table(dict(zip(COLUMNS, values, strict=True))), data, row_group_size=20_000, **options)
    return data.getvalue()


def command(*arguments):
    model = [] if "--embedded" in arguments else ["--embedded", MODEL]
    return [BINARY, "infer", *model, *map(str, arguments)]


@pytest.fixture
def infer(request, tmp_path):
    """Runs `mlserver infer`, and returns what it printed."""

    def run(*arguments, code=0, port=None, store=None, **variables):
        of_store = store.variables() if store else request.getfixturevalue("s3").variables(port)
        variables = {"MLSERVER_STORAGE_CACHE": str(tmp_path / "cache"), **of_store, **variables}
        options = {"env": environment(**variables), "cwd": tmp_path, "timeout": 5 * PATIENCE}
        done = subprocess.run(command(*arguments), capture_output=True, text=True, **options)
        printed = done.stdout + done.stderr
        assert done.returncode == code, printed
        assert SECRET not in printed and AZURITE_KEY not in printed
        return printed

    return run


def answers(data):
    """Lines without the random id of the request that each row was sent in."""
    return re.sub(rb'"inference_id":"[-0-9a-f]+"', b"", data)


def get(store, key):
    return answers(store.get(key))


def keys(s3, prefix):
    return [found["Key"] for found in s3.client.list_objects_v2(Bucket=s3.bucket, Prefix=prefix).get("Contents", [])]


def local(infer, tmp_path, name, data, output):
    """Returns the answers of a run from and to files of this machine."""
    (tmp_path / "local").mkdir(exist_ok=True)
    (tmp_path / "local" / name).write_bytes(data)
    infer("-i", f"local/{name}", "-o", f"local/answers-{output}")
    return answers((tmp_path / "local" / f"answers-{output}").read_bytes())


def leftovers(tmp_path):
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_parts_of_a_bucket_are_answered(s3, infer, prefix, tmp_path):
    parts = {f"part-{number}.parquet": parquet(3000, number, compression="zstd") for number in range(3)}
    for name, data in parts.items():
        s3.put(f"{prefix}/in/{name}", data)
    for other in ["_SUCCESS", "part-9.csv", "sub/part-9.parquet"]:
        s3.put(f"{prefix}/in/{other}", b"not selected")
    printed = infer("-i", s3.uri(f"{prefix}/in/part-*.parquet"), "-o", s3.uri(f"{prefix}/out/"))
    assert keys(s3, f"{prefix}/out/") == [f"{prefix}/out/{name}" for name in parts]
    for name, data in parts.items():
        assert get(s3, f"{prefix}/out/{name}") == local(infer, tmp_path, name, data, name)
    assert "9000 rows, 0 failed" in printed and "input 3 of 3" in printed
    assert leftovers(tmp_path) == []


TABLE = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])
REQUEST = {"id": "a", "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": TABLE[0].tolist()}]}


def files():
    npy = io.BytesIO()
    np.save(npy, TABLE)
    csv = "\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in TABLE)])
    objects = "\n".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in TABLE)
    lines = f"{json.dumps(REQUEST)}\n\n{json.dumps(REQUEST)}"
    pairs = {"csv": csv, "tsv": csv.replace(",", "\t"), "ndjson": objects, "jsonl": lines}
    return {"npy": npy.getvalue(), **{kind: text.encode() for kind, text in pairs.items()}}


@pytest.mark.parametrize("kind", files())
@pytest.mark.parametrize("output", ["jsonl", "csv", "parquet"])
def test_formats_are_those_of_files(s3, infer, prefix, tmp_path, kind, output):
    data, code = files()[kind], 4 if kind == "jsonl" else 0
    s3.put(f"{prefix}/in.{kind}", data)
    (tmp_path / f"in.{kind}").write_bytes(data)
    infer("-i", f"in.{kind}", "-o", f"out.{output}", code=code)
    infer("-i", s3.uri(f"{prefix}/in.{kind}"), "-o", s3.uri(f"{prefix}/out.{output}"), code=code)
    expected = answers((tmp_path / f"out.{output}").read_bytes())
    assert get(s3, f"{prefix}/out.{output}") == expected
    # From a file to an object, from an object to a file, and to standard output.
    infer("-i", f"in.{kind}", "-o", s3.uri(f"{prefix}/2.{output}"), code=code)
    assert get(s3, f"{prefix}/2.{output}") == expected
    infer("-i", s3.uri(f"{prefix}/in.{kind}"), "-o", f"3.{output}", code=code)
    assert answers((tmp_path / f"3.{output}").read_bytes()) == expected
    assert '"batch_index":1' in infer("-i", s3.uri(f"{prefix}/in.{kind}"), "-o", "-", code=code)


@pytest.mark.parametrize("rows", [3000, 150_000])
def test_answers_are_uploaded_to_stores(store, infer, prefix, tmp_path, rows):
    """In one piece, or in several of 8 or 16 MiB."""
    data = parquet(rows, 3)
    store.put(f"{prefix}/in.parquet", data)
    arguments = ["-i", store.uri(f"{prefix}/in.parquet"), "-o", store.uri(f"{prefix}/out.jsonl")]
    infer(*arguments, "--batch-size", "5000", store=store)
    written = get(store, f"{prefix}/out.jsonl")
    (tmp_path / "in.parquet").write_bytes(data)
    infer("-i", "in.parquet", "-o", "expected.jsonl", "--batch-size", "5000", store=store)
    assert written == answers((tmp_path / "expected.jsonl").read_bytes())
    assert (len(written) > 3 * (8 << 20)) == (rows > 100_000)
    assert leftovers(tmp_path) == []


def test_embedded_models_may_lie_in_stores(store, infer, prefix, tmp_path):
    store.put(f"{prefix}/model.json", (MODEL / "model.json").read_bytes())
    write_settings(tmp_path / "remote", store.uri(f"{prefix}/model.json"))
    (tmp_path / "in.csv").write_bytes(files()["csv"])
    infer("--embedded", tmp_path / "remote", "-i", "in.csv", "-o", "remote.jsonl", store=store)
    infer("-i", "in.csv", "-o", "local.jsonl", store=store)
    data = [
        [json.loads(line)["outputs"][0]["data"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("remote.jsonl", "local.jsonl")
    ]
    assert data[0] == data[1] == [[0], [2]]


def test_several_inputs_have_an_output_each(s3, infer, prefix, tmp_path):
    data = files()["csv"]
    for key in ["a/x.csv", "a/sub/y.csv", "b/z.csv"]:
        s3.put(f"{prefix}/{key}", data)
    (tmp_path / "own.csv").write_bytes(data)
    inputs = ["-i", s3.uri(f"{prefix}/a"), "-i", s3.uri(f"{prefix}/b/z.csv"), "-i", "own.csv", "--input-format", "csv"]
    infer(*inputs, "-o", s3.uri(f"{prefix}/out/"))
    infer(*inputs, "-o", "out/")
    names = ["own.csv", "sub/y.csv", "x.csv", "z.csv"]
    assert keys(s3, f"{prefix}/out/") == [f"{prefix}/out/{name}" for name in names]
    for name in names:
        assert get(s3, f"{prefix}/out/{name}") == (tmp_path / "out" / name).read_bytes()


def test_inputs_and_outputs_that_do_not_fit_are_refused(s3, infer, prefix):
    s3.put(f"{prefix}/in/a.csv", files()["csv"])
    s3.put(f"{prefix}/in/b.csv", files()["csv"])
    folder, one = s3.uri(f"{prefix}/in"), s3.uri(f"{prefix}/in/a.csv")

    def fails(*arguments, code=2):
        return infer(*arguments, code=code)

    assert "there are 2 inputs, but the output" in fails("-i", f"{folder}/*.csv", "-o", s3.uri(f"{prefix}/out.csv"))
    assert "name a folder, with `/` at its end" in fails("-i", f"{folder}/*.csv", "-o", "-")
    assert "several inputs need a folder" in fails("-i", one, "-i", one, "-o", "x.csv")
    assert "would both be `a.csv`" in fails("-i", one, "-i", one, "-o", "out/")
    assert "set --input-format" in fails("-i", folder, "-o", "out/")
    assert "is both input and output" in fails("-i", one, "-o", one)
    assert "none of its 2 objects has a name like `*.npy`" in fails("-i", f"{folder}/*.npy", "-o", "out/", code=1)
    assert "the bucket has a.csv, b.csv" in fails("-i", f"{folder}/c.csv", "-o", "out/", code=1)
    assert "expected an object of S3" in fails("-i", one, "-o", "hf://org/repo/out.csv", code=1)


def test_complete_outputs_are_skipped_until_their_input_changes(s3, infer, prefix):
    def put(name):
        s3.put(f"{prefix}/in/{name}", files()["csv"])
        written = s3.client.head_object(Bucket=s3.bucket, Key=f"{prefix}/in/{name}")["LastModified"].timestamp()
        # An output of the same second might be older.
        wait_until(lambda: time.time() > written + 1.1, "the next second")

    for name in ["a.csv", "b.csv"]:
        put(name)
    arguments = ["-i", s3.uri(f"{prefix}/in/*.csv"), "-o", s3.uri(f"{prefix}/out/"), "--resume"]
    infer(*arguments)
    assert "skipping 2 inputs, whose answers are complete" in infer(*arguments)
    put("b.csv")
    put("c.csv")
    printed = infer(*arguments)
    assert "skipping 1 inputs" in printed and "input 2 of 2" in printed and "4 rows, 0 failed" in printed
    assert len(keys(s3, f"{prefix}/out/")) == 3


@pytest.mark.parametrize("fault", [{"reset": 30_000}, {"end": 30_000}, {"status": 503}, {"stall": 30_000}])
def test_reads_are_continued(s3, proxy, infer, prefix, tmp_path, fault):
    data = parquet(60_000, 1)
    s3.put(f"{prefix}/in.parquet", data)
    proxy.faults = lambda _path, number: fault if number % 3 == 0 else None
    options = {"port": proxy.port, "MLSERVER_STORAGE_IDLE_TIMEOUT": "0.5"}
    infer("-i", s3.uri(f"{prefix}/in.parquet"), "-o", s3.uri(f"{prefix}/out.jsonl"), **options)
    assert get(s3, f"{prefix}/out.jsonl") == local(infer, tmp_path, "in.parquet", data, "out.jsonl")
    # Ranges, and no object as a whole.
    assert None not in proxy.requests


def test_inputs_that_change_are_refused(s3, proxy, infer, prefix):
    key = f"{prefix}/in.csv"
    lines = b",".join(name.encode() for name in COLUMNS) + b"\n" + b"5.1,3.5,1.4,0.2\n" * 1_500_000
    s3.put(key, lines)

    def change(_path, number):
        if number == 1:
            s3.put(key, lines[:-100] + b"9.9,9.9,9.9,9.9\n")

    proxy.faults = change
    arguments = ["-i", s3.uri(key), "-o", s3.uri(f"{prefix}/out.csv"), "--batch-size", "10000"]
    assert "changed while it was fetched" in infer(*arguments, code=1, port=proxy.port)
    assert keys(s3, f"{prefix}/out") == []


def part_number(path):
    return int(path.split("partNumber=")[1].split("&")[0])


def test_failed_uploads_leave_no_object_and_are_continued(s3, proxy, infer, prefix, tmp_path):
    data = parquet(150_000, 2)
    s3.put(f"{prefix}/in.parquet", data)
    output = s3.uri(f"{prefix}/out.jsonl")
    arguments = ["-i", s3.uri(f"{prefix}/in.parquet"), "-o", output, "--batch-size", "5000", "--resume"]
    sent = []

    def refuse_later_parts(path):
        if "partNumber=" not in path:
            return None
        return {"status": 403} if part_number(path) > 2 else None

    proxy.put_faults = refuse_later_parts
    printed = infer(*arguments, code=1, port=proxy.port)
    assert f"cannot upload to `{output}`" in printed and "access denied with `AWS_ACCESS_KEY_ID`" in printed
    assert "repeat the command with --resume to continue the upload" in printed
    assert keys(s3, f"{prefix}/out") == []
    uploads = s3.client.list_multipart_uploads(Bucket=s3.bucket, Prefix=f"{prefix}/out")["Uploads"]
    assert len(uploads) == 1
    sent.clear()
    proxy.put_faults = lambda path: sent.append(path) if "partNumber=" in path else None
    printed = infer(*arguments, port=proxy.port)
    assert "all 150000 rows have been answered already" in printed
    expected = local(infer, tmp_path, "in.parquet", data, "out.jsonl")
    assert get(s3, f"{prefix}/out.jsonl") == expected
    # The first parts were there.
    size = s3.client.head_object(Bucket=s3.bucket, Key=f"{prefix}/out.jsonl")["ContentLength"]
    numbers = sorted(map(part_number, sent))
    assert numbers and numbers[0] == 3 and numbers[-1] == -(-size // (8 << 20))
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket=s3.bucket, Prefix=f"{prefix}/out")
    assert leftovers(tmp_path) == []


def test_killed_runs_equal_one_run(s3, infer, prefix, tmp_path):
    """Ten kills at random moments, over several parts."""
    random_moments = random.Random(7)
    parts = {f"part-{number}.parquet": parquet(100_000, number) for number in range(3)}
    for name, data in parts.items():
        s3.put(f"{prefix}/in/{name}", data)
    source, options = s3.uri(f"{prefix}/in/part-*.parquet"), ["--batch-size", "2000"]
    began = time.monotonic()
    infer("-i", source, "-o", s3.uri(f"{prefix}/once/"), *options)
    whole = time.monotonic() - began
    variables = environment(MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **s3.variables())
    killed = command("-i", source, "-o", s3.uri(f"{prefix}/killed/"), "--resume", *options)
    for _ in range(10):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(killed, env=variables, stdout=log, stderr=log, cwd=tmp_path)
        try:
            process.wait(random_moments.uniform(0.1, 0.5) * whole)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        # What is there is complete.
        for key in keys(s3, f"{prefix}/killed/"):
            assert get(s3, key) == get(s3, key.replace("/killed/", "/once/"))
    infer(*killed[4:])
    assert len(keys(s3, f"{prefix}/killed/")) == len(parts)
    for name in parts:
        assert get(s3, f"{prefix}/killed/{name}") == get(s3, f"{prefix}/once/{name}")
    assert leftovers(tmp_path) == []


def peak(process):
    """Waits for a process, and returns the most memory that it had, in bytes."""
    most = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            most = int(found[1]) * 1024 if found else most
        time.sleep(0.05)
    return most


def test_wide_tables_need_little_more_memory_than_a_row_group(s3, proxy, prefix, tmp_path):
    """A row group of distinct numbers: with a page and a dictionary of each column, it takes twice its size."""
    columns, rows = 500, 30_000
    numbers = np.random.default_rng(1).uniform(size=(columns, rows))
    data = io.BytesIO()
    pq.write_table(pa.table({f"c{column}": numbers[column] for column in range(columns)}), data)
    s3.put(f"{prefix}/wide.parquet", data.getvalue())
    model = json.loads((MODEL / "model.json").read_text())
    model["learner"]["learner_model_param"]["num_feature"] = str(columns)
    write_settings(tmp_path / "wide", "./model.json")
    (tmp_path / "wide/model.json").write_text(json.dumps(model))

    def run(source, log):
        arguments = [BINARY, "infer", "--embedded", tmp_path / "wide", "-i", source, "-o", tmp_path / "out.jsonl"]
        variables = environment(MLSERVER_STORAGE_CACHE=str(tmp_path / "cache"), **s3.variables(proxy.port))
        with (tmp_path / log).open("wb") as out:
            process = subprocess.Popen(arguments, env=variables, stdout=out, stderr=out)
            try:
                most = peak(process)
            finally:
                process.kill()
        assert process.wait() == 0, (tmp_path / log).read_text()
        return most

    # What the program, a model and the batches in flight take.
    few = io.BytesIO()
    pq.write_table(pa.table({f"c{column}": numbers[column][:6000] for column in range(columns)}), few)
    (tmp_path / "few.parquet").write_bytes(few.getvalue())
    least = run(tmp_path / "few.parquet", "few.log")
    most = run(s3.uri(f"{prefix}/wide.parquet"), "wide.log")
    assert most < least + 1.7 * numbers.nbytes, f"{most:,} bytes, and {least:,} for few rows"
    # Each block is read about once, and not each page by itself.
    assert len(proxy.requests) < 2 * len(data.getvalue()) / (4 << 20) + 10
    assert proxy.sent < 1.1 * len(data.getvalue())
