"""`examples/spark` and `examples/ray` print what their READMEs say."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT, wait_for_end_of_children


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_example_prints_the_documented_output(engine, monkeypatch):
    folder = ROOT / "examples" / engine
    documented = re.search(r"```text\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    # Spark of the package, and not the session of other tests.
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    run = subprocess.run([sys.executable, folder / "score.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == documented
    wait_for_end_of_children()
