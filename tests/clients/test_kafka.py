"""The example of Kafka, with a real broker and the commands of its README. Needs an executable with the feature `kafka`."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import BINARY, ROOT, Server

EXAMPLE = ROOT / "examples" / "kafka"


@pytest.fixture
def broker(tmp_path):
    """Runs a broker and returns its address."""
    empty = tmp_path / "empty"
    empty.mkdir()
    if not has_kafka(empty):
        # The last step of CI has an executable with the feature.
        assert "MLSERVER_TEST_KAFKA" not in os.environ, "the executable was built without the feature `kafka`"
        pytest.skip("the executable was built without the feature `kafka`")
    folder = BINARY.parents[1] / "kafka"
    command = [ROOT / "tests" / "kafka" / "broker", "run", folder, "--data", tmp_path / "broker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if not line and process.wait() == 3 and "CI" not in os.environ:
        pytest.skip("this machine cannot run a Kafka broker")
    assert line, f"the broker does not start: exit code {process.wait()}"
    yield line.split()[0]
    process.stdin.close()
    process.stdout.close()
    process.wait()


def has_kafka(folder):
    """Returns whether the executable has the feature `kafka`."""
    (folder / "settings.json").write_text(json.dumps({"kafka_enabled": True}))
    run = subprocess.run([BINARY, "doctor", folder], capture_output=True, text=True, timeout=60)
    return "without the feature `kafka`" not in run.stdout + run.stderr


def test_example_answers_what_is_sent(broker, tmp_path):
    """Copies the example as its README says, and compares what it prints."""
    readme = (EXAMPLE / "README.md").read_text()
    assert "cp -r examples/quickstart/iris-xgboost examples/kafka" in readme
    folder = tmp_path / "kafka"
    shutil.copytree(EXAMPLE, folder)
    shutil.copytree(ROOT / "examples" / "quickstart" / "iris-xgboost", folder / "iris-xgboost")
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**settings, "kafka_servers": broker}))
    command = [sys.executable, folder / "send.py", "--servers", broker, "--timeout", "120"]
    subprocess.run([*command, "--create-topics"], check=True, timeout=200)
    server = Server(folder)
    try:
        server.wait_until_ready(120)
        run = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert run.returncode == 0, run.stdout + run.stderr + server.log.read_text()
    finally:
        server.stop()
    expected = re.search(r"in some order:\n\n```\n(.*?)```", readme, re.DOTALL)[1]
    assert sorted(run.stdout.splitlines()) == sorted(expected.splitlines()), run.stdout
