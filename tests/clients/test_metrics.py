"""Metrics that a model records with `prometheus_client`, through real workers."""

import json
import os
import re
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Dict, Optional

import pytest
from conftest import Server
from prometheus_client.parser import text_string_to_metric_families

MODEL = """
import os, time

from mlserver import MLModel
import numpy as np
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse
from prometheus_client import Counter, Gauge, Histogram

SEEN = Counter("rows_seen", "Rows that were seen", ["kind"])
LEVEL = Gauge("level", "The last level")
OPEN = Gauge("open_files", "Open files", multiprocess_mode="livesum")
TOOK = Histogram("row_seconds", "Time of a row", buckets=[0.1, 1])
OWN = Counter("model_infer_request_success", "A name that the server has already")

class Counting(MLModel):
    def predict(self, payload):
        word = StringCodec.decode_input(payload.inputs[0])[0]
        if word == "sleep":
            time.sleep(2)
        SEEN.labels("a").inc(2)
        LEVEL.set(7)
        OPEN.set(3)
        TOOK.observe(0.5)
        OWN.inc()
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("pid", np.array([os.getpid()]))])
"""


@pytest.fixture
def server(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "counting.py").write_text(MODEL)
    (tmp_path / "model" / "model-settings.json").write_text(
        json.dumps({"name": "counting", "implementation": "counting.Counting"})
    )
    variables = {"MLSERVER_METRICS_ENDPOINT": "/metrics", "MLSERVER_METRICS_PORT": "0", "MLSERVER_PARALLEL_WORKERS": "2"}
    server = Server(tmp_path / "model", VIRTUAL_ENV=sys.prefix, PATH=os.environ["PATH"], **variables)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def scrape(server: Server) -> Dict[str, Dict[str, float]]:
    """Returns the values by name and labels, parsed with the client's own parser."""
    url = re.search(r"scraping endpoint can be accessed on (http://\S+)", server.log.read_text())[1]
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: Dict[str, Dict[str, float]] = {}
    for family in families:
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), (sample.name, labels)
            found[sample.name][labels] = sample.value
    return found


def predict(server: Server, word: str = "x") -> Optional[int]:
    body = {"inputs": [{"name": "i", "datatype": "BYTES", "shape": [1], "data": [word]}]}
    request = urllib.request.Request(f"{server.url}/v2/models/counting/infer", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.load(answer)["outputs"][0]["data"][0])


def until_both(server: Server) -> Dict[int, int]:
    """Predicts until both workers have answered, and returns how often each did."""
    calls: Dict[int, int] = {}
    while len(calls) < 2:
        pid = predict(server)
        calls[pid] = calls.get(pid, 0) + 1
    return calls


def test_scrape_sums_all_workers(server: Server):
    calls = until_both(server)
    count = sum(calls.values())
    told = scrape(server)
    assert told["rows_seen_total"] == {"kind=a": 2 * count}
    assert told["row_seconds_bucket"] == {"le=0.1": 0, "le=1.0": count, "le=+Inf": count}
    assert told["row_seconds_sum"] == {"": 0.5 * count}
    assert told["level"] == {f"pid={pid}": 7 for pid in calls}
    assert told["open_files"] == {"": 6}
    assert not [name for name in told if name.endswith("_created") or name.startswith("python_info")]
    assert told["model_infer_request_success_total"] == {"model=counting,version=None": count}, "the server's own"


def test_counts_outlive_their_worker(server: Server):
    calls = until_both(server)
    assert scrape(server)["open_files"] == {"": 6}
    victim = next(iter(calls))
    os.kill(victim, signal.SIGKILL)
    for _ in range(200):
        told = scrape(server)
        if told["open_files"] == {"": 3}:
            break
        time.sleep(0.05)
    assert told["open_files"] == {"": 3}, "gauges go with their worker"
    assert told["rows_seen_total"] == {"kind=a": 2 * sum(calls.values())}, "counters stay"


def test_busy_worker_does_not_delay_a_scrape(server: Server):
    until_both(server)
    before = scrape(server)["rows_seen_total"]
    sleepers = [threading.Thread(target=predict, args=(server, "sleep")) for _ in range(2)]
    for sleeper in sleepers:
        sleeper.start()
    time.sleep(0.3)
    start = time.monotonic()
    assert scrape(server)["rows_seen_total"] == before
    assert time.monotonic() - start < 1
    for sleeper in sleepers:
        sleeper.join()
    assert scrape(server)["rows_seen_total"]["kind=a"] == before["kind=a"] + 4
