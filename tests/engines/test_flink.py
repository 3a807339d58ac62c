"""The recipe of docs/guides/distributed.md on a cluster of Flink: a job manager, and a task manager with two slots."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

# The other engines need versions of pandas and pyarrow that Flink does not take: requirements-flink.txt is its own environment.
pyflink = pytest.importorskip("pyflink")

import joblib
import numpy as np
from conftest import BINARY, FEATURES, JAVA, PATIENCE, ROOT, numbers, processes, same_bits, scoring_children, wait_until
from ruamel.yaml import YAML
from sklearn.ensemble import RandomForestClassifier

GUIDE = ROOT / "docs/guides/distributed.md"
HOME = Path(pyflink.__file__).parent
SLOTS = 2


def recipe(mode):
    """Returns the program of the guide, and the words of the command that submits it."""
    section = re.search(r"^## Flink\n(.*?)^## ", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[1]
    program = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    commands = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(command.replace("\\\n", "")) for command in commands]
    [command] = [words for words in commands if mode in words]
    return program, command


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """Processes of Flink, and how to ask them."""

    def __init__(self, folder):
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.daemons = []
        # Children write who has started them, also those that live too short to be seen.
        self.starts = folder / "starts"
        executable = folder / "mlserver"
        executable.write_text(f'#!/bin/sh\n[ "$1" != score ] || echo $PPID >> {self.starts}\nexec {BINARY} "$@"\n')
        executable.chmod(0o755)
        for name in ("log", "pid", "tmp"):
            (folder / name).mkdir()
        shutil.copytree(HOME / "conf", folder / "conf")
        self.configure()
        self.environment = {
            **os.environ,
            "MLSERVER_BIN": str(executable),
            "FLINK_CONF_DIR": str(folder / "conf"),
            "FLINK_LOG_DIR": str(folder / "log"),
            "FLINK_PID_DIR": str(folder / "pid"),
        }

    def configure(self):
        """Changes the package's configuration: free ports of the loopback interface, and files in the folder of the test."""
        file = self.folder / "conf/config.yaml"
        settings = YAML(typ="safe").load(file.read_text())
        host, port = self.address.split(":")
        settings["jobmanager"].update({"bind-host": host, "rpc": {"address": host, "port": free_port()}})
        settings["taskmanager"].update({"bind-host": host, "host": host, "numberOfTaskSlots": SLOTS})
        settings["rest"] = {"address": host, "bind-address": host, "port": int(port)}
        settings["io"] = {"tmp": {"dirs": str(self.folder / "tmp")}}
        settings["env"]["java"]["opts"]["all"] += f" {JAVA}"
        file.write_text(json.dumps(settings))

    def start(self):
        """Starts both processes, and waits for the slots."""
        for script in ("jobmanager.sh", "taskmanager.sh"):
            with open(self.folder / f"{script}.out", "w") as out:
                command = [HOME / "bin" / script, "start-foreground"]
                self.daemons.append(self.spawn(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        wait_until(self.is_free, "the start of the cluster")

    def spawn(self, command, **options):
        """Starts a process that uses the configuration."""
        return subprocess.Popen([str(word) for word in command], env=self.environment, **options)

    def stop(self):
        """Ends all processes, and fails if others are left."""
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Python workers, and the Python process of a client, end with the process that has started them.
        wait_until(lambda: not processes(), "the end of all")

    def ask(self, path, method="GET"):
        """Returns an answer of the job manager."""
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def is_free(self):
        """Reports whether no job has a slot."""
        assert all(daemon.poll() is None for daemon in self.daemons), "a process of the cluster has ended"
        try:
            return self.ask("/overview")["slots-available"] == SLOTS
        except (urllib.error.URLError, ConnectionError):
            return False

    def states(self):
        """Returns the state of each job by its id."""
        return {job["id"]: job["status"] for job in self.ask("/jobs")["jobs"]}

    @contextlib.contextmanager
    def submit(self, mode, model, folder, *options):
        """Runs the command of the guide, with further options, and yields its process, whose output is `folder/output`."""
        program, command = recipe(mode)
        # The guide takes ten seconds for what a test waits for.
        program, seconds = re.subn("'10 s'", "'1 s'", program)
        assert seconds == 3
        (folder / "score.py").write_text(program)
        replaced = {
            "flink": HOME / "bin/flink",
            "flink:8081": self.address,
            "8": SLOTS,
            "/opt/venv/bin/python": sys.executable,
            "s3://models/churn": model,
            "s3://lake/events/": folder / "events",
            "s3://lake/scores/": folder / "scores",
        }
        assert set(replaced) <= set(command)
        words = [replaced.get(word, word.replace("interval=10s", "interval=1s")) for word in command]
        place = words.index("--python")
        words[place:place] = options
        with open(folder / "output", "w") as out:
            client = self.spawn(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield client
        finally:
            client.kill()
            client.wait()
            for job, state in self.states().items():
                if state not in ("FINISHED", "FAILED", "CANCELED"):
                    self.ask(f"/jobs/{job}?mode=cancel", "PATCH")

    def wait_for_nobody(self):
        """Waits until the job has neither slots nor processes, while the cluster is running."""
        wait_until(
            lambda: self.is_free() and not scoring_children() and not workers(), "the end of the job's processes"
        )

    def children_of_workers(self):
        """Returns how many children each Python worker has started."""
        starts = Counter(self.starts.read_text().split())
        self.starts.unlink()
        return list(starts.values())


def workers():
    """Returns the ids of the Python workers, without the shells that start them."""
    return processes("pyflink.fn_execution.beam.beam_boot")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("flink"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def write_rows(table, file):
    """Writes a file that appears as a whole. JSON has no NaN, which Flink reads as text."""
    rows = table.select(["id", *FEATURES]).to_pylist()
    rows = [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{file.name}")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part.rename(file)


def written(folder):
    """Returns the lines of the files that are complete. Others have names that begin with a dot, or their folder does."""
    return [line for file in (folder / "scores").glob("part-*") for line in file.read_text().splitlines()]


def check(folder, table, wanted):
    rows = sorted((json.loads(line) for line in written(folder)), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == table["id"].to_pylist()
    assert same_bits([row["probability"] for row in rows], wanted[:, 1].astype(np.float64))


@pytest.fixture
def wanted(models, table, embedded):
    return embedded(models / "xgboost", table, FEATURES, ["predict_proba"])["predict_proba"]


def test_batch_equals_infer_with_one_child_for_each_worker(cluster, models, table, wanted, tmp_path):
    for part in range(4):
        rows = len(table) // 4
        write_rows(table.slice(part * rows, rows), tmp_path / f"events/{part}.json")
    with cluster.submit("batch", models / "xgboost", tmp_path) as client:
        assert client.wait(PATIENCE) == 0, (tmp_path / "output").read_text()
        cluster.wait_for_nobody()
    check(tmp_path, table, wanted)
    assert cluster.children_of_workers() == [1] * SLOTS


def test_streaming_equals_infer_and_cancelling_ends_all_processes(cluster, models, table, wanted, tmp_path):
    half = len(table) // 2
    write_rows(table.slice(0, half), tmp_path / "events/0.json")
    with cluster.submit("streaming", models / "xgboost", tmp_path) as client:
        wait_until(lambda: len(written(tmp_path)) == half or client.poll() is not None, "the first half")
        for part in range(1, 5):
            write_rows(table.slice(half + (part - 1) * half // 4, half // 4), tmp_path / f"events/{part}.json")
        wait_until(lambda: len(written(tmp_path)) == len(table) or client.poll() is not None, "the second half")
        assert client.poll() is None, (tmp_path / "output").read_text()
        # One worker and one child for each slot.
        assert len(workers()) == len(scoring_children()) == SLOTS
        [job] = [job for job, state in cluster.states().items() if state == "RUNNING"]
        cluster.ask(f"/jobs/{job}?mode=cancel", "PATCH")
        cluster.wait_for_nobody()
        assert cluster.states()[job] == "CANCELED"
    check(tmp_path, table, wanted)
    assert cluster.children_of_workers() == [1] * SLOTS


@pytest.fixture
def forest(tmp_path):
    """A model that rejects infinite numbers."""
    train = numbers(500, seed=7).to_pandas()[FEATURES].astype(float)
    model = RandomForestClassifier(5, random_state=0).fit(train, train["age"] > 40)
    (tmp_path / "forest").mkdir()
    joblib.dump(model, tmp_path / "forest/model.joblib")
    settings = {"name": "forest", "implementation": "mlserver_sklearn.SKLearnModel"}
    (tmp_path / "forest/model-settings.json").write_text(json.dumps(settings))
    return tmp_path / "forest"


# With checkpoints, Flink would run the job again.
@pytest.mark.parametrize(("mode", "options"), [("batch", []), ("streaming", ["-Drestart-strategy.type=disable"])])
def test_row_that_the_model_rejects_fails_the_job_with_the_reason(cluster, forest, table, tmp_path, mode, options):
    assert all(f"`{option}`" in GUIDE.read_text() for option in options)
    write_rows(table.slice(0, 3_000), tmp_path / "events/0.json")
    with open(tmp_path / "events/0.json", "a") as file:
        file.write('{"id": 3000, "age": "Infinity", "income": 1.0, "visits": 1}\n')
    with cluster.submit(mode, forest, tmp_path, *options) as client:
        assert client.wait(PATIENCE) != 0
        cluster.wait_for_nobody()
    output = (tmp_path / "output").read_text()
    assert "InferenceError: `RandomForestClassifier` does not accept missing or infinite values" in output
    assert not written(tmp_path)
    assert set(cluster.children_of_workers()) == {1}
