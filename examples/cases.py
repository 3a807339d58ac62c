"""Sends the calls in the examples' `cases.json` to a running server, and compares the answers with the recorded ones.

    python examples/cases.py examples/decode-args http://127.0.0.1:8080
    python examples/cases.py examples/decode-args http://127.0.0.1:8080 --record    # write the answers instead

The recorded answers are those of MLServer 1.7.1, so that an example that passes here works as it does there. A case names
method, path, headers and body of a call; its answer has the status, the body (JSON, or the events of a stream), those
headers that a model set, and lines that the metrics must have. Where a case says `status_only`, the server's own words for
what is wrong with a call are left out. Standard library only.
"""

import argparse
import json
import pathlib
import re
import sys
import urllib.error
import urllib.request
from typing import Any, Dict, List, Tuple

Case = Dict[str, Any]

# MLServer prefixes the message of an exception with its class only if the exception comes from a worker.
_QUALIFIED_CLASS = re.compile(r"^\w+(\.\w+)+: ")


def ask(url: str, case: Case) -> Case:
    """Sends one call, and returns the recorded fields of its answer."""
    body = case.get("body")
    request = urllib.request.Request(
        url + case["path"],
        method=case.get("method", "POST" if body is not None else "GET"),
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": "application/json", **case.get("headers", {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, headers, content = response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        status, headers, content = error.code, error.headers, error.read()
    answer: Case = {"status": status}
    if case.get("status_only"):
        return answer
    if headers.get_content_type() == "text/event-stream":
        events = content.decode().split("\n\n")
        answer["events"] = [json.loads(event.partition("data: ")[2]) for event in events if event]
    elif headers.get_content_type() != "application/json":
        answer["text"] = content.decode()
    elif content:
        answer["body"] = json.loads(content)
        if status >= 400 and "error" in answer["body"]:
            answer["body"]["error"] = _QUALIFIED_CLASS.sub("", answer["body"]["error"])
    kept = {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-")}
    if kept:
        answer["headers"] = kept
    return answer


def metrics_missing(metrics_url: str, lines: List[str]) -> List[str]:
    """Returns the lines that are not in the server's metrics, ignoring the order of labels and the format of numbers."""
    with urllib.request.urlopen(f"{metrics_url}/metrics", timeout=30) as response:
        text = response.read().decode()
    found = [_sample(line) for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if _sample(line) not in found]


def _sample(line: str) -> Tuple[str, List[str], float]:
    """Returns name, labels and value of a line of metrics."""
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    return name, sorted(labels.rstrip("}").split(",")), float(value)


def differences(recorded: Any, found: Any, where: str = "answer", tolerance: float = 1e-6) -> List[str]:
    """Returns the differences between a recorded and an actual answer. Numbers may differ by a relative `tolerance`."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        told = []
        for name in [*recorded, *(name for name in found if name not in recorded)]:
            if name not in found or name not in recorded:
                told.append(f"{where}.{name} is {'missing' if name in recorded else 'new'}")
            else:
                told += differences(recorded[name], found[name], f"{where}.{name}", tolerance)
        return told
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return [
            told
            for index, pair in enumerate(zip(recorded, found))
            for told in differences(*pair, f"{where}[{index}]", tolerance)
        ]
    if isinstance(recorded, float) and isinstance(found, (int, float)) and not isinstance(found, bool):
        close = abs(recorded - found) <= tolerance * max(abs(recorded), abs(found))
        return [] if close else [f"{where}: {recorded} was recorded, {found} came"]
    if isinstance(recorded, str) and isinstance(found, str) and recorded[:1] in ("{", "["):
        try:
            # JSON in a string contains numbers, too.
            return differences(json.loads(recorded), json.loads(found), where, tolerance)
        except ValueError:
            pass
    return [] if recorded == found else [f"{where}: {recorded!r} was recorded, {found!r} came"]


def main() -> int:
    """Returns the exit code: 0 if all answers match."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("url")
    parser.add_argument("--metrics-url")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    file = options.folder / "cases.json"
    cases = json.loads(file.read_text(encoding="utf-8"))
    told = []
    for case in cases:
        if "metrics" in case:
            if options.metrics_url:
                missing = metrics_missing(options.metrics_url, case["metrics"])
                told += [f"{case['name']}: the metrics lack {line}" for line in missing]
            continue
        answer = ask(options.url, case)
        if options.record:
            case["answer"] = answer
        else:
            told += [f"{case['name']}: {difference}" for difference in differences(case["answer"], answer)]
    if options.record:
        file.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print("\n".join(told) or f"{options.folder.name}: {len(cases)} cases agree")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
