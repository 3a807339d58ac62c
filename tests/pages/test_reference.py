"""The generated pages of the reference are up to date, and say what a running server says."""

import json
import os
import re
import shutil
import subprocess
import urllib.request

import pytest
import reference
from pages import BINARY, ROOT, TestedServer

PAGES = {"cli": reference.command_line, "api": reference.api, "metrics": reference.metrics}
REFERENCE = ROOT / "docs/reference"


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name):
    page = REFERENCE / f"{name}.md"
    text = PAGES[name]()
    if os.environ.get("MLSERVER_UPDATE"):
        page.write_text(text)
    assert page.read_text() == text, f"{page} is stale: MLSERVER_UPDATE=1 pytest tests/pages/test_reference.py"


def test_command_line_has_every_command_and_flag():
    page = (REFERENCE / "cli.md").read_text()
    completions = subprocess.run([BINARY, "completions", "fish"], capture_output=True, text=True, check=True).stdout
    long = re.findall(r"^complete .* -l (\S+)", completions, re.MULTILINE)
    # `--extra-verbose` is hidden, and so are those that switch off what a variable switches on.
    hidden = {"help", "version", "color", "extra-verbose"}
    flags = {flag for flag in long if flag not in hidden and not flag.startswith("no-")}
    assert len(flags) > 50
    assert [flag for flag in sorted(flags) if f"--{flag}" not in page] == []


#: What a server needs for most of its metrics.
SETTINGS = {"cache_enabled": True, "models_max_bytes": 100_000_000, "api_keys_file": "keys.json"}
ROW = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}


def scraped(text):
    """Returns type, help and labels of each metric in the text format."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            found.setdefault(name, {"labels": set()})[word] = rest
        else:
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line).groups()
            family = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
            found[family]["labels"] |= set(re.findall(r'(\w+)="', labels or "")) - {"le"}
    return found


def test_metrics_page_matches_a_running_server(tmp_path):
    models = tmp_path / "models"
    shutil.copytree(ROOT / "examples/quickstart/iris-xgboost", models / "iris-xgboost")
    settings = json.loads((models / "iris-xgboost/model-settings.json").read_text())
    batching = {**settings, "max_batch_size": 4, "max_batch_time": 0.001, "cache_enabled": True}
    (models / "iris-xgboost/model-settings.json").write_text(json.dumps(batching))
    shutil.copytree(ROOT / "examples/json-model", models / "json-model")
    shutil.copytree(ROOT / "examples/graph-ensemble", models / "graph")
    (models / "settings.json").write_text(json.dumps(SETTINGS))
    key = [
        "keys",
        "create",
        "--name",
        "test",
        "--scope",
        "admin",
        "--scope",
        "infer",
        "--scope",
        "read",
        "--scope",
        "metrics",
    ]
    made = subprocess.run(
        [BINARY, *key, "--file", "keys.json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    token = made.stdout.strip()
    with TestedServer(models, tmp_path) as server:

        def ask(address, path, body=None):
            request = urllib.request.Request(f"http://{address}{path}", body and json.dumps(body).encode())
            request.add_header("authorization", f"Bearer {token}")
            request.add_header("content-type", "application/json")
            return urllib.request.urlopen(request, timeout=60).read().decode()

        ask(server.http, "/v2/models/iris-xgboost/infer", ROW)
        graph_request = json.loads((models / "graph/request.json").read_text())
        ask(server.http, "/v2/models/ensemble/infer", graph_request)
        (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
        infer = ["infer", "-t", "grpc", "-u", server.grpc, "-m", "iris-xgboost", "-i", "rows.jsonl", "-o", "-"]
        subprocess.run([BINARY, *infer, "--token", token], cwd=tmp_path, capture_output=True, check=True)
        found = scraped(ask(server.metrics, "/metrics"))

    page = (REFERENCE / "metrics.md").read_text()
    rows = re.finditer(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", page, re.MULTILINE)
    documented = {
        row[1]: {"TYPE": row[2], "labels": set(re.findall(r"`(\w+)`", row[3])), "HELP": row[4]} for row in rows
    }
    assert set(found) <= set(documented)
    # Failures and Kafka are missing.
    assert len(found) > 35, sorted(set(documented) - set(found))
    for name, metric in found.items():
        if not metric["labels"]:
            metric["labels"] = documented[name]["labels"]
        assert metric == documented[name], name


def test_exit_codes_are_those_of_the_source():
    source = (ROOT / "src/commands/mod.rs").read_text()
    codes = {eval(code) for code in re.findall(r"^pub const \w+: u8 = ([\d +]+);", source, re.MULTILINE)}
    page = (REFERENCE / "exit-codes.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
    assert {int(code) for row in rows for code in row.split(",")} == codes
