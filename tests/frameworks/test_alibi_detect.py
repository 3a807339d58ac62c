"""Detectors of alibi-detect: behavior that the goldens do not cover."""

import re
import shutil
import subprocess
import sys
import urllib.request

from alibi_detect_cases import absent
from support import golden_models, need, reasons, run_example, serve, settings, suite

suite("alibi_detect")

IMPLEMENTATION = "mlserver_alibi_detect.AlibiDetectRuntime"
MODELS = golden_models("alibi_detect")
ONLINE = """
import sys, numpy
from alibi_detect.cd import CVMDriftOnline
from alibi_detect.saving import save_detector
rows = numpy.random.default_rng(7).normal(size=(40, 1))
save_detector(CVMDriftOnline(rows, ert=20, window_sizes=[5], n_bootstraps=200), sys.argv[1])
"""


def ask(server, model, rows, columns):
    tensor = {"name": "x", "datatype": "FP64", "shape": [rows, columns], "data": [[3.5] * columns] * rows}
    return server.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})


def outputs(answer):
    assert answer.status == 200, answer.body
    return {output["name"]: output for output in answer.json()["outputs"]}


def test_drift_is_reported_in_headers_and_metrics(tmp_path):
    need("alibi_detect")
    with_outliers = "outliers" not in absent()
    for name in ("drift", "features", *(["outliers"] if with_outliers else [])):
        shutil.copytree(MODELS / name, tmp_path / name)
    server = serve(tmp_path, sys.executable, MLSERVER_METRICS_ENDPOINT="/metrics", MLSERVER_METRICS_PORT="0")
    try:
        server.wait_until_ready()
        found = ask(server, "drift", 4, 3).headers
        assert (found["x-seldon-alibi-type"], found["x-seldon-alibi-method"]) == ("drift", "ks")
        if with_outliers:
            found = ask(server, "outliers", 1, 3).headers
            assert (found["x-seldon-alibi-type"], found["x-seldon-alibi-method"]) == ("outlier", "isolationforest")
        ask(server, "features", 4, 3)
        with urllib.request.urlopen(f"{server.announced('Metrics')}/metrics") as response:
            text = response.read().decode()
        for model, count in {"drift": 1, "features": 3}.items():
            found = re.search(
                rf'^seldon_model_drift_count{{[^}}]*model_name="{model}"[^}}]*}} (\S+)$', text, re.MULTILINE
            )
            assert float(found[1]) == count, text
            found = re.search(
                rf'^seldon_model_drift_sum{{[^}}]*model_name="{model}"[^}}]*}} (\S+)$', text, re.MULTILINE
            )
            assert float(found[1]) == count, text
        assert 'seldon_model_drift_count{model_name="outliers"' not in text
    finally:
        server.stop()


def test_online_detector_takes_single_rows_and_keeps_state(tmp_path):
    need("alibi_detect")
    settings(tmp_path / "online", IMPLEMENTATION, "./detector", state_save_freq=6)
    subprocess.run([sys.executable, "-c", ONLINE, tmp_path / "online/detector"], check=True, capture_output=True)
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        found = outputs(ask(server, "online", 3, 1))
        assert (found["time"]["data"], found["is_drift"]["shape"]) == ([1, 2, 3], [3, 1])
        assert not (tmp_path / "online/detector/state").exists()
        found = outputs(ask(server, "online", 5, 1))
        assert found["time"]["data"] == [4, 5, 6, 7, 8]
        assert found["is_drift"]["data"][-1] == 1
        assert (tmp_path / "online/detector/state").is_dir()
    finally:
        server.stop()
    # The state since the last save is lost.
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        assert outputs(ask(server, "online", 1, 1))["time"]["data"] == [7]
    finally:
        server.stop()


def test_batch_ignores_requests_of_other_shapes(tmp_path):
    need("alibi_detect")
    shutil.copytree(MODELS / "batches", tmp_path / "batches")
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        assert outputs(ask(server, "batches", 1, 3)) == {}
        refused = ask(server, "batches", 1, 2)
        assert refused.status == 400
        assert "a row has the shape [2], but [3]" in refused.json()["error"]
        assert outputs(ask(server, "batches", 1, 3)) == {}
        assert outputs(ask(server, "batches", 1, 3))["is_drift"]["data"] == [1]
    finally:
        server.stop()


def test_failed_load_reports_the_reason(tmp_path):
    need("alibi_detect")
    settings(tmp_path / "empty", IMPLEMENTATION)
    settings(tmp_path / "missing", IMPLEMENTATION, "./nope")
    settings(tmp_path / "never", IMPLEMENTATION, batch_size=0)
    (settings(tmp_path / "broken", IMPLEMENTATION) / "config.toml").write_text('name = "Nonsense"\n')
    found = reasons(tmp_path, sys.executable)
    assert found["empty"].startswith(f"Invalid configuration for model empty: cannot load `{tmp_path}/empty`: ")
    assert found["broken"].startswith(f"Invalid configuration for model broken: cannot load `{tmp_path}/broken`: ")
    assert found["missing"] == f"Invalid URI specified for model missing ({tmp_path}/missing/nope)"
    assert found["never"] == "`parameters.extra.batch_size` is 0, expected at least 1"


def test_example_readme_commands_work(tmp_path):
    need("alibi_detect")
    run_example(tmp_path, "alibi-detect")
