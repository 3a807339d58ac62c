"""Writes the generated pages of the reference: the command line, REST and gRPC, and metrics."""

import json
import re
import subprocess
from typing import NamedTuple

from pages import BINARY, ROOT

GENERATED = "<!-- Generated: `MLSERVER_UPDATE=1 pytest tests/pages/test_reference.py` updates this page. -->"


def cell(text):
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


# The command line


def command_line():
    """Returns the page of all commands, from their help."""
    page = ["# Command line", GENERATED]
    page.append("`mlserver COMMAND --help` prints the same. [Exit codes](exit-codes.md) lists how each command ends.")
    for path, text in commands([]):
        page += command(path, text)
    return "\n\n".join(page) + "\n"


def commands(path):
    """Yields each command below `path`, with its help."""
    done = subprocess.run([BINARY, *path, "--help"], capture_output=True, text=True, check=True)
    if path:
        yield path, done.stdout
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", done.stdout, re.MULTILINE)
    for name in re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []:
        if name != "help":
            yield from commands([*path, name])


def command(path, text):
    """Returns the paragraphs of one command."""
    level = "#" * (len(path) + 1)
    yield f"{level} `mlserver {' '.join(path)}`"
    head, *sections = re.split(r"^(?=(?:Usage: |[A-Z][A-Za-z ]*:$))", text, flags=re.MULTILINE)
    yield from (described(paragraph) for paragraph in head.strip().split("\n\n"))
    for section in sections:
        title, _, body = section.partition(":")
        if title == "Usage":
            yield f"```text\n{body.strip()}\n```"
        elif title == "Examples":
            yield "```text\n" + "\n".join(line.strip() for line in body.strip().splitlines()) + "\n```"
        elif title != "Commands":
            rows = [row for row in entries(body) if "--help" not in row[0] and "--color" not in row[0]]
            if rows:
                table = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in rows)
                yield f"| {title.lower()} | |\n|---|---|\n{table}"


def entries(body):
    """Returns the names and meanings of a section's arguments."""
    rows = []
    for line in body.strip("\n").splitlines():
        if found := re.match(r"^ {2,6}((?:-|<|\[)\S*(?: \S+)*)(?: {2,}(.*))?$", line):
            rows.append((cell(found[1]), found[2] or ""))
        elif rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
    return [(name, described(NOTE.sub(note, cell(meaning)))) for name, meaning in rows]


#: What clap adds to a meaning.
NOTE = re.compile(r" ?\[(env|default|possible values): ([^\]]*)\]")


def note(found):
    """Returns a note of clap as a sentence."""
    name = {"env": "Environment variable", "default": "Default", "possible values": "Values"}[found[1]]
    return f". {name}: {found[2]}"


def described(meaning):
    """Returns a meaning for a table, with no more markup than code in backticks."""
    parts = cell(meaning).split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


# REST and gRPC


def api():
    """Returns the page of routes and calls, from the OpenAPI document and the protocol files."""
    document = json.loads((ROOT / "src/server/rest/openapi/api.json").read_text())
    page = ["# REST and gRPC", GENERATED]
    page.append(
        "A running server has the OpenAPI document of everything that it serves at `/openapi.json`, with a page at "
        "`/v2/docs`, and one for each model at `/v2/models/NAME/docs`. [Tensors](../tensors.md) describes requests and "
        "responses, [Errors](errors.md) the statuses of failures."
    )
    page.append("## REST")
    groups = {tag["name"]: tag.get("description", "") for tag in document["tags"]}
    routes = {name: [] for name in groups}
    for path, item in document["paths"].items():
        for method, route in item.items():
            if isinstance(route, dict):
                routes[route["tags"][0]].append((method.upper(), path, route))
    for group, description in groups.items():
        page.append(f"### {group[0].upper()}{group[1:]}")
        if description:
            page.append(description)
        rows = ["| route | | statuses |", "|---|---|---|"]
        for method, path, route in routes[group]:
            statuses = ", ".join(route["responses"])
            text = described(route["summary"] + ". " + route["description"])
            rows.append(f"| `{method} {path}` | {text} | {statuses} |")
        page.append("\n".join(rows))
    page.append("## gRPC")
    page.append(
        "The services of MLServer, on `grpc_port`. The server also has `grpc.health.v1.Health` and reflection, so that "
        "`grpcurl` needs no files."
    )
    for file in ["dataplane.proto", "model_repository.proto"]:
        page += services(file)
    return "\n\n".join(page) + "\n"


def services(file):
    """Yields the paragraphs of the services in a protocol file."""
    text = (ROOT / "proto" / file).read_text()
    package = re.search(r"^package (\S+);", text, re.MULTILINE)[1]
    for name, body in re.findall(r"^service (\w+)\s*\{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        yield f"### `{package}.{name}`"
        yield f"In [`proto/{file}`](../../proto/{file})."
        rows = ["| call | request | response | |", "|---|---|---|---|"]
        pattern = (
            r"((?:^\s*//[^\n]*\n)*)^\s*rpc (\w+)\s*\(\s*(stream )?(\w+)\s*\)\s*returns\s*\(\s*(stream )?(\w+)\s*\)"
        )
        for comment, call, sent, request, received, response in re.findall(pattern, body, re.MULTILINE):
            comment = described(re.sub(r"^\s*//", "", comment, flags=re.MULTILINE))
            rows.append(f"| `{call}` | {sent}`{request}` | {received}`{response}` | {comment} |")
        yield "\n".join(rows)


# Metrics


class Metric(NamedTuple):
    name: str
    kind: str
    labels: str
    help: str


#: The kinds of values that are registered without being a field of a struct.
VALUES = {"DroppedLines": "Counter", "ByteBudgetGauge(budget)": "Gauge", "limit": "Gauge"}


STRUCT = re.compile(r"struct (\w+) \{(.*?)\n\}", re.DOTALL)
KINDS = "Family|Counter|Gauge|Histogram|Summary"
FIELD = re.compile(rf"^ {{4}}(?:pub )?(\w+): (?:Option<)?((?:{KINDS})[^\n]*),$", re.MULTILINE)


def metrics_of_source():
    """Returns all metrics that the sources register, by name."""
    found = {}
    for file in sorted((ROOT / "src").rglob("*.rs")):
        text = file.read_text().split("#[cfg(test)]")[0]
        if ".register(" not in text or ("prometheus_client" not in text and "metrics::Registry" not in text):
            continue
        labels = {name: label_names(body, text) for name, body in STRUCT.findall(text)}
        fields = {}
        for name, kind in FIELD.findall(text):
            fields.setdefault(name, kind)
        for call in registrations(text):
            name, help_text, value = arguments(call)
            name = re.sub(r"^format!\(\"\{prefix\}(.*)\"\)$", r"rest_server\1", name).strip('"')
            if help_text == "help":
                before = text[: text.index(call)]
                help_text = re.findall(r'let help =\s*"([^"]*)"', before)[-1]
            field = re.sub(r"^(?:metrics|self)\.|\.clone\(\)$", "", value)
            kind = VALUES.get(field) or fields[field]
            family = re.match(r"Family<(\w+), (\w+)", kind)
            kind, label = (family[2], labels[family[1]]) if family else (re.match(r"\w+", kind)[0], [])
            # Histograms of our own.
            kind = re.sub(r"^\w+Histogram$", "Histogram", kind)
            name += "_total" if kind == "Counter" else ""
            label = ", ".join(f"`{one}`" for one in label)
            found[name] = Metric(name, kind.lower(), label, help_text.strip('"'))
    return found


def label_names(body, text):
    """Returns the labels of a struct, with those of the struct that is flattened into it."""
    names = []
    flatten = False
    for line in body.splitlines():
        if "flatten" in line:
            flatten = True
        elif field := re.match(r"\s*(?:pub )?(\w+): (.+),$", line):
            if flatten:
                inner = re.search(rf"struct {field[2]} \{{(.*?)\n\}}", text, re.DOTALL)
                names += label_names(inner[1], text)
            else:
                names.append(field[1])
            flatten = False
    return sorted(names)


def registrations(text):
    """Yields the arguments of each call of `register`."""
    for found in re.finditer(r"registry\.register\(", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[found.end() : end - 1]


def arguments(call):
    """Splits arguments at commas outside of parentheses and texts."""
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|\([^()]*(?:\([^()]*\)[^()]*)*\)|[^,"(])+', re.sub(r"\s+", " ", call))
    return [part.strip() for part in parts if part.strip()]


GROUPS = {
    "Requests to models": ("model_infer", "batch_request"),
    "Graphs": ("graph_",),
    "Response cache": ("response_cache",),
    "Memory": ("request_bytes", "models_"),
    "Object stores": ("model_download",),
    "REST": ("rest_server",),
    "gRPC": ("grpc_",),
    "Connections and logs": ("connections", "accept", "log_"),
    "Access control": ("access_",),
    "Python workers": ("worker", "parallel"),
    "Kafka": ("kafka_",),
}


def metrics():
    """Returns the page of all metrics."""
    notes = (ROOT / "tests/pages/metrics_notes.txt").read_text().strip()
    found = metrics_of_source()
    missing = [name for name in found if not name.startswith(tuple(sum(GROUPS.values(), ())))]
    assert not missing, f"the page has no group for {missing}: add their beginning to GROUPS"
    page = ["# Metrics", GENERATED, notes]
    for title, prefixes in GROUPS.items():
        rows = ["| metric | type | labels | |", "|---|---|---|---|"]
        for name in sorted(found):
            if name.startswith(prefixes):
                metric = found[name]
                rows.append(f"| `{name}` | {metric.kind} | {metric.labels} | {described(metric.help)} |")
        page += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(page) + "\n"
