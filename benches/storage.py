"""Compares `mlserver pull` with `aws s3 cp` and KServe's storage initializer, and kills `mlserver infer` between two buckets.

    python3 -m venv target/bench-storage
    target/bench-storage/bin/pip install --requirement benches/storage-requirements.txt
    target/bench-storage/bin/python benches/storage.py --ours target/dist/mlserver

`pull` fetches files over TLS from a store of its own, since moto reads the whole object for each range. The clients take
turns. Each downloaded file is compared with its object by SHA-256. The processor time is that of the client and its children,
and the most resident memory that of the client. `mlserver pull` syncs its files, and the others do not.

`score` answers Parquet of one bucket of moto into another one: once undisturbed, and once with ten kills at random moments,
after each of which `--resume` continues. All objects of both runs are compared byte by byte.

Each result is printed as a line of JSON when it is known, and tables in Markdown at the end. The program needs `openssl`, and
disk for twice the size.
"""

import argparse
import contextlib
import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import socketserver
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from email.utils import formatdate

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples/quickstart/iris-xgboost"
COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]
KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET, PREFIX = "models", "weights"
FILES = 4
MIB = 1 << 20
# How much a store sends at once.
PIECE = 256 << 10
# The longest time for a client, and for a server to start.
PATIENCE = 3600
# What the variables of this process have that clients need.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG")
KSERVE = "import sys; from kserve_storage import Storage; Storage.download(sys.argv[1], sys.argv[2])"


def result(**values):
    print(json.dumps(values), flush=True)
    return values


def size_of(text):
    """Reads a size such as 10GB."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([KMG]?)B?", text.upper()).groups()
    return int(float(number) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[unit])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"a store did not start on port {port}")


@contextlib.contextmanager
def running(command, port, log):
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(port, process)
        yield
    finally:
        process.terminate()
        process.wait()


class Store(http.server.BaseHTTPRequestHandler):
    """What clients of S3 need to fetch the files of a folder: ListObjectsV2, its predecessor, HEAD, and GET with ranges."""

    protocol_version = "HTTP/1.1"
    folder = pathlib.Path()

    def log_message(self, *_):
        pass

    def setup(self):
        # Here and not when the connection is accepted, so that no handshake holds up other connections.
        self.request.do_handshake()
        super().setup()

    def head(self, status, length, **headers):
        self.send_response(status)
        self.send_header("x-amz-request-id", "1")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        _, bucket, *key = urllib.parse.unquote(url.path).split("/", 2)
        query = urllib.parse.parse_qs(url.query)
        if bucket != BUCKET:
            return self.head(404, 0)
        if not key or not key[0]:
            return self.list(query.get("prefix", [""])[0])
        path = self.folder / key[0]
        if not path.is_file():
            return self.head(404, 0)
        size = path.stat().st_size
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(found[1]), min(int(found[2] or size - 1), size - 1)) if found else (0, size - 1)
        headers = {
            "ETag": self.tag(path),
            "Last_Modified": formatdate(path.stat().st_mtime, usegmt=True),
            "Accept_Ranges": "bytes",
            "Content_Type": "application/octet-stream",
        }
        if found:
            headers["Content_Range"] = f"bytes {start}-{end}/{size}"
        self.head(206 if found else 200, end - start + 1, **headers)
        return None if self.command == "HEAD" else self.send_file(path, start, end + 1)

    do_HEAD = do_GET

    @staticmethod
    def tag(path):
        # As that of an object that was uploaded in parts: no hash of its bytes.
        return f'"{hashlib.md5(path.name.encode()).hexdigest()}-{FILES}"'

    def send_file(self, path, start, end):
        buffer = memoryview(bytearray(PIECE))
        with path.open("rb", buffering=0) as file, contextlib.suppress(OSError):
            file.seek(start)
            while start < end:
                read = file.readinto(buffer[: min(PIECE, end - start)])
                self.connection.sendall(buffer[:read])
                start += read
            return
        self.close_connection = True

    def list(self, prefix):
        text = io.StringIO()
        text.write('<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">')
        text.write(f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>")
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            key = str(path.relative_to(self.folder))
            if key.startswith(prefix):
                modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(path.stat().st_mtime))
                text.write(f"<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{self.tag(path)}</ETag>")
                text.write(f"<Size>{path.stat().st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>")
        text.write("</ListBucketResult>")
        body = text.getvalue().encode()
        self.head(200, len(body), Content_Type="application/xml")
        self.wfile.write(body)


class TlsServer(socketserver.ThreadingTCPServer):
    """Serves a folder over TLS, each connection in a thread."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, port, folder):
        super().__init__(("127.0.0.1", port), Store)
        Store.folder = folder
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(folder.parent / "certificate.pem", folder.parent / "key.pem")

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_):
        pass


def write_files(folder, size):
    """Writes the objects: no MiB of them equals another one. Returns their hashes."""
    hashes = {}
    noise = random.Random(41).randbytes(MIB)
    for number in range(FILES):
        path = folder / PREFIX / f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        left = size // FILES
        with path.open("wb") as file:
            while left > 0:
                piece = (f"{path.name} {left:020} ".encode() + noise)[: min(MIB, left)]
                file.write(piece)
                digest.update(piece)
                left -= len(piece)
        hashes[path.name] = digest.hexdigest()
    return hashes


def sha256(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measured(command, variables, folder, kill_after=None):
    """Runs a client, and returns its wall time, its processor time, the most memory that it had, and whether it was killed."""
    log = folder / "log"
    with log.open("wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), env=variables, stdout=out, stderr=out, cwd=folder)
        timer = threading.Timer(kill_after or PATIENCE, process.kill)
        timer.start()
        most = [0]
        threading.Thread(target=watch, args=(process.pid, most), daemon=True).start()
        # Its children are those that it waited for.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
    was_killed = kill_after is not None and process.returncode == -signal.SIGKILL
    if process.returncode != 0 and not was_killed:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {log.read_text()[-3000:]}")
    # Not `ru_maxrss`, which is at least the memory of the process that started it.
    return {"seconds": seconds, "processor": usage.ru_utime + usage.ru_stime, "mib": most[0] / 1024}, was_killed


def watch(pid, most):
    """Reads the most memory of a process, in KiB, until it ends."""
    status = pathlib.Path(f"/proc/{pid}/status")
    with contextlib.suppress(OSError):
        while found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text()):
            most[0] = max(most[0], int(found[1]))
            time.sleep(0.02)


def environment(**variables):
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, **KEYS, **variables}


def summary(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def pull(options, work):
    """Fetches the same files with each client, in turns."""
    names = ("-keyout", work / "key.pem", "-out", work / "certificate.pem", "-subj", "/CN=127.0.0.1")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    extension = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    subprocess.run(["openssl", "req", *kind, *names, *extension], check=True, capture_output=True)
    size = size_of(options.size or "10GB")
    hashes = write_files(work / "objects", size)
    result(part="pull", size=size, files=len(hashes))
    port = free_port()
    certificate, out = str(work / "certificate.pem"), work / "out"
    endpoint = f"https://127.0.0.1:{port}"
    variables = environment(AWS_ENDPOINT_URL=endpoint, AWS_CA_BUNDLE=certificate, S3_VERIFY_SSL="1", S3_USE_HTTPS="1")
    uri = f"s3://{BUCKET}/{PREFIX}"
    folder = pathlib.Path(sys.executable).parent
    clients = {
        "`mlserver pull`": [options.ours, "pull", "--quiet", uri, out],
        "`aws s3 cp --recursive`": [folder / "aws", "s3", "cp", "--recursive", "--only-show-errors", uri, out],
        "KServe's storage initializer": [sys.executable, "-c", KSERVE, uri, out],
    }
    if options.clients:
        clients = {name: command for name, command in clients.items() if any(part in name for part in options.clients)}
    found = {name: [] for name in clients}
    serve = [sys.executable, __file__, "--serve", str(port), "--work", str(work)]
    with running(serve, port, work / "store.log"):
        for number in range(options.repeat):
            for name, command in clients.items():
                out.mkdir()
                one, _ = measured(command, variables, work)
                if options.compare:
                    fetched = {path.name: sha256(path) for path in out.rglob("*") if path.is_file()}
                    if fetched != hashes:
                        raise SystemExit(f"{name} fetched other bytes: {fetched}")
                shutil.rmtree(out)
                found[name].append(one)
                result(part="pull", client=name, run=number + 1, compared=options.compare, **one)
    lines = [f"| client, {size / 1e9:g} GB in {FILES} files, {options.repeat} runs | s | s of processor time | MiB at most |"]
    lines.append("|---|---:|---:|---:|")
    for name, runs in found.items():
        columns = [summary([run[key] for run in runs]) for key in ("seconds", "processor", "mib")]
        lines.append(f"| {name} | {' | '.join(columns)} |")
    return lines


def write_tables(client, size):
    """Writes Parquet into a bucket until it has `size` bytes, and returns the number of objects."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    client.create_bucket(Bucket="inputs")
    client.create_bucket(Bucket="outputs")
    # Numbers of FP64 that do not compress.
    rows = max(1000, min(2_000_000, size // 32 // 8))
    written, number = 0, 0
    while written < size:
        values = numpy.random.default_rng(number).uniform(0.1, 8, (len(COLUMNS), rows))
        data = io.BytesIO()
        table = pyarrow.table(dict(zip(COLUMNS, values, strict=True)))
        pyarrow.parquet.write_table(table, data, row_group_size=100_000)
        client.put_object(Bucket="inputs", Key=f"part-{number:04}.parquet", Body=data.getvalue())
        written += data.tell()
        number += 1
    return number


def killed(command, variables, folder, longest):
    """Kills `mlserver infer` ten times at random moments, and runs it to its end. Returns its figures, and how many kills."""
    moments = random.Random(7)
    runs, kills = [], 0
    began = time.perf_counter()
    for number in range(11):
        kill_after = moments.uniform(0.02, 0.15) * longest if number < 10 else None
        run, was_killed = measured(command, variables, folder, kill_after)
        runs.append(run)
        if not was_killed:
            break
        kills += 1
    seconds, processor = time.perf_counter() - began, sum(run["processor"] for run in runs)
    return {"seconds": seconds, "processor": processor, "mib": max(run["mib"] for run in runs)}, kills


def score(options, work):
    """Answers all rows of a bucket once, and once more with kills, and compares the objects."""
    import boto3

    size = size_of(options.size or "2GB")
    port = free_port()
    moto = pathlib.Path(sys.executable).parent / "moto_server"
    with running([moto, "-H", "127.0.0.1", "-p", str(port)], port, work / "moto.log"):
        keys = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
        objects = write_tables(client, size)
        result(part="score", size=size, objects=objects)
        variables = environment(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", MLSERVER_STORAGE_CACHE=str(work / "cache"))

        def command(folder):
            source = ["-i", "s3://inputs/part-*.parquet", "-o", f"s3://outputs/{folder}/", "--batch-size", "5000", "--resume"]
            return [str(options.ours), "infer", "--embedded", str(MODEL), *source]

        once, _ = measured(command("once"), variables, work)
        result(part="score", kills=0, **once)
        again, kills = killed(command("killed"), variables, work, once["seconds"])
        result(part="score", kills=kills, **again)
        equal = 0
        for number in range(objects):
            name = f"part-{number:04}.parquet"
            first, second = (
                client.get_object(Bucket="outputs", Key=f"{folder}/{name}")["Body"].read() for folder in ("once", "killed")
            )
            if first != second:
                raise SystemExit(f"{name} differs after kills")
            equal += 1
        result(part="score", objects=objects, equal=equal)
    lines = [f"| {size / 1e9:g} GB of Parquet in {objects} objects | s | s of processor time | MiB at most | equal |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, one, same in [("undisturbed", once, ""), (f"killed {kills} times", again, f"{equal} of {objects}")]:
        lines.append(f"| {name} | {one['seconds']:.1f} | {one['processor']:.1f} | {one['mib']:.1f} | {same} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", type=pathlib.Path, default=ROOT / "target/release/mlserver", help="the executable `mlserver`")
    parser.add_argument("--only", choices=["pull", "score"], help="one of the two parts")
    parser.add_argument("--repeat", type=int, default=4, help="runs of each client of `pull`")
    parser.add_argument("--size", help="bytes of all files, such as 2GB (default: 10GB for `pull`, 2GB for `score`)")
    parser.add_argument("--clients", nargs="+", help="only the clients of `pull` with such names: mlserver, aws, KServe")
    parser.add_argument("--no-compare", dest="compare", action="store_false", help="do not compare the files of `pull`")
    parser.add_argument("--work", type=pathlib.Path, help="the folder of files (default: a temporary one, which is removed)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return TlsServer(options.serve, options.work / "objects").serve_forever()
    options.ours = options.ours.resolve()
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    tables = []
    for name, part in {"pull": pull, "score": score}.items():
        if options.only in (None, name):
            work = pathlib.Path(tempfile.mkdtemp(prefix=f"storage-{name}-", dir=options.work))
            try:
                tables += ["", *part(options, work)]
            finally:
                shutil.rmtree(work, ignore_errors=True)
    print("\n".join(tables))
    return None


if __name__ == "__main__":
    main()
