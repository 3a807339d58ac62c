"""The dashboard and the alerts use metrics and labels that exist."""

import json
import re

import pytest
import reference
import yaml
from pages import ROOT, blocks

GUIDES = ROOT / "docs/guides"


def dashboard():
    document = json.loads((GUIDES / "grafana-dashboard.json").read_text())
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield variable["name"], f'{name}{{{label}=""}}'


def alerts():
    [block] = [block for block in blocks(GUIDES / "observability.md") if block.argument == "alerts.yml"]
    for group in yaml.safe_load(block.text)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def test_there_are_expressions():
    assert len(list(dashboard())) > 15
    assert len(list(alerts())) == 3


@pytest.mark.parametrize(("where", "expression"), [*dashboard(), *alerts()])
def test_expression_uses_metrics_and_labels_that_exist(where, expression):
    metrics = reference.metrics_of_source()
    known = {name: metric for name, metric in metrics.items() if metric.kind != "histogram"}
    for name, metric in metrics.items():
        if metric.kind in ("histogram", "summary"):
            known |= {f"{name}_{suffix}": metric for suffix in ("count", "sum")}
        if metric.kind == "histogram":
            known[f"{name}_bucket"] = metric
    names = [name for name in re.findall(r"[a-z_]{3,}", expression) if "_" in name]
    used = [name for name in names if name in known]
    # Names with underscores are metrics, labels or this function.
    labels = {label for name in used for label in re.findall(r"`(\w+)`", known[name].labels)} | {"job", "le"}
    functions = {"histogram_quantile", "__rate_interval", "client_disconnected"}
    assert used, f"{where}: no metric in {expression}"
    assert set(names) - set(used) - labels - functions == set()
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    selected = set(re.findall(r'(\w+)(?:=~|!=|=)"', expression))
    assert grouped | selected <= labels
