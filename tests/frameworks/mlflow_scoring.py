"""Requests of MLflow's own protocol, and the answers that its scoring server gives.

python tests/frameworks/mlflow_scoring.py    # records them, in the environment that `generate.py mlflow` needs
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional

FILE = pathlib.Path(__file__).resolve().parent / "goldens/mlflow/scoring.json"

JSON = "application/json"
CSV = "text/csv"
FLOWERS = ["sepal length", "sepal width", "petal length", "petal width"]
TWO = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]
SPLIT = {"dataframe_split": {"columns": FLOWERS, "data": TWO}}
RECORDS = [dict(zip(FLOWERS, row)) for row in TWO]
HEADER = ",".join(FLOWERS)
FIRST = '{"predictions": [0]}'
BOTH = '{"predictions": [0, 2]}'
EIGHT = {
    "boolean": True,
    "integer": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.1,
    "string": "ü",
    "binary": "aGVsbG8=",
    "datetime": "2020-01-02T03:04:05",
}
KINDS = ["array", "integers", "scalar", "number", "word", "numbers", "rows", "words", "objects", "empty", "series"]
KINDS += ["frame", "dict", "lists", "nested", "nothing", "error", "value error"]

Case = Dict[str, Any]


def ask(
    model: str,
    body: Any,
    content_type: str = JSON,
    method: str = "POST",
    path: str = "/invocations",
    ours: Optional[str] = None,
) -> Case:
    """Returns a request; a body that is no text is sent as JSON. `ours` is our answer, 200, if it differs on purpose."""
    text = body if isinstance(body, str) else json.dumps(body)
    case: Case = {"model": model, "method": method, "path": path, "content_type": content_type, "body": text}
    if ours is not None:
        case["ours"] = {"status": 200, "content_type": JSON, "text": ours}
    return case


CASES: List[Case] = [
    *(ask("flowers", "", method="GET", path=path) for path in ["/ping", "/health", "/version"]),
    ask("flowers", SPLIT),
    ask("flowers", SPLIT, "application/json; charset=UTF-8"),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS, "data": TWO, "index": [7, 8]}}),
    ask("flowers", {"dataframe_records": RECORDS}),
    ask("flowers", {"dataframe_records": [dict(reversed(list(row.items()))) for row in RECORDS]}),
    ask("flowers", {"inputs": {name: [row[name] for row in RECORDS] for name in FLOWERS}}),
    ask("flowers", {"instances": RECORDS}),
    ask("flowers", {"inputs": TWO}),
    ask("flowers", {**SPLIT, "other": 1}),
    ask("flowers", {**SPLIT, "params": None}),
    ask("flowers", {**SPLIT, "params": {"foo": 1}}),
    ask("flowers", {**SPLIT, "params": 3}),
    ask("flowers", f"{HEADER}\n5.1,3.5,1.4,0.2\n6.7,3,5.2,2.3\n", CSV),
    ask("flowers", f"{HEADER}\n5.1,3.5,1.4,0.2\n", "text/csv; charset=utf-8"),
    ask("flowers", f"{HEADER}\n5.1,x,1.4,0.2\n", CSV),
    ask("flowers", "x\n5.1\n", CSV),
    ask("flowers", "", CSV),
    ask("flowers", SPLIT, "application/json; charset=latin-1"),
    ask("flowers", SPLIT, "application/json; foo=bar"),
    ask("flowers", "<x/>", "application/xml"),
    ask("flowers", f"{HEADER}\n5.1,3.5,1.4,0.2\n", "application/csv", ours=FIRST),
    ask("flowers", f"{HEADER}\n5.1,3.5,1.4,0.2\n", "text/csv;", ours=FIRST),
    ask("flowers", SPLIT, "application/json;", ours=BOTH),
    ask("flowers", SPLIT, "application/json; charset=UTF-8; ", ours=BOTH),
    ask("flowers", SPLIT, "application/json; ="),
    ask("flowers", RECORDS, ours=BOTH),
    ask("flowers", RECORDS, "application/json;", ours=BOTH),
    ask("flowers", [RECORDS[0], 1]),
    ask("flowers", []),
    ask("flowers", "[{"),
    ask("flowers", ""),
    ask("flowers", "{"),
    ask("flowers", "nonsense"),
    ask("flowers", [1, 2]),
    ask("flowers", 5),
    ask("flowers", "null"),
    ask("flowers", {}),
    ask("flowers", {"inputs": [1], "instances": [1]}),
    ask("flowers", {"dataframe_split": {"columns": ["a"]}}),
    ask("flowers", {"dataframe_split": [1]}),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS, "data": [[1, 2]]}}),
    ask("flowers", {"dataframe_records": 5}),
    ask("flowers", {"instances": 5}),
    ask("flowers", {"inputs": None}),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS, "data": [["a", 3.5, 1.4, 0.2]]}}),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS[:2], "data": [[1, 2]]}}),
    ask("flowers", {"dataframe_split": {"columns": [*FLOWERS, "more"], "data": [[5.1, 3.5, 1.4, 0.2, 1]]}}),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS, "data": [[5, 3, 1, 0]]}}),
    ask("flowers", {"dataframe_split": {"columns": FLOWERS, "data": [[5.1, None, 1.4, 0.2]]}}),
    ask("columns", {"dataframe_records": [EIGHT]}),
    ask("columns", {"inputs": {name: [value] for name, value in EIGHT.items()}}),
    ask("columns", {"instances": [EIGHT]}),
    ask("columns", {"dataframe_records": [{**EIGHT, "integer": 2**40}]}),
    ask("columns", {"dataframe_records": [{**EIGHT, "datetime": "yesterday"}]}),
    ask("nested", {"dataframe_records": [{"list": [1, 2], "object": {"name": "n"}}]}),
    ask("nested", {"dataframe_records": [{"list": "no", "object": {"name": "n"}}]}),
    ask("words", {"inputs": {"text": ["ab", "ü"]}}),
    ask("words", {"inputs": {"text": ["ab", "ü"], "n": [1, 2]}}),
    ask("words", {"dataframe_records": [{"text": 5}]}),
    ask("unnamed", {"inputs": [[1, 2], [3, 4]]}),
    ask("unnamed", {"dataframe_split": {"data": [[1, 2]]}}),
    ask("free", {"inputs": [[1, 2], [3, 4]]}),
    ask("free", {"inputs": {"a": [1, 2], "b": ["x", "y"]}}),
    ask("free", {"inputs": "text"}),
    ask("free", {"inputs": []}),
    ask("free", {"instances": [[1.5]]}),
    ask("free", {"instances": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}),
    ask("free", {"dataframe_records": [{"a": 1, "b": "x"}]}),
    ask("free", [{"a": 1, "b": "x"}], ours="""{"predictions": ["frame(a=['int:1'], b=['str:x'])"]}"""),
    ask("free", {"dataframe_split": {"columns": ["a"], "data": [[0.5]]}}),
    ask("free", {"dataframe_split": {"data": [[0.5]]}}),
    ask("free", {"inputs": [1], "params": {"scale": 2}}),
    ask("free", "a,b\n1,x\n2,y\n", CSV),
    ask("free", {"messages": [{"role": "user", "content": "hi"}]}),
    ask("free", {"prompt": "hi", "scale": 2}),
    ask("free", {"input": "hi"}),
    ask("scale", {"dataframe_split": {"columns": ["x"], "data": [[1.5], [2]]}}),
    ask("scale", {"inputs": {"x": [1.5, 2]}, "params": {"scale": 2, "word": "abc", "adds": [1, 2]}}),
    ask("scale", {"inputs": {"x": [1.5, 2]}, "params": {"scale": "x"}}),
    ask("scale", {"inputs": {"x": [1.5, 2]}, "params": {"foo": 1}}),
    ask("scale", {"inputs": {"x": []}}),
    ask("scale", "x\n1.5\n", CSV),
    ask("tensor", {"inputs": [[1, 2, 3], [4, 5, 6]]}),
    ask("tensor", {"instances": [[1, 2, 3]]}),
    ask("tensor", {"inputs": [[1, 2]]}),
    ask("tensor", {"inputs": [["a", "b", "c"]]}),
    ask("tensor", "a,b,c\n1,2,3\n", CSV),
    ask("named", {"inputs": {"a": [[1, 2]], "b": [[3, 4]]}}),
    ask("named", {"instances": [{"a": [1, 2], "b": [3, 4]}]}),
    ask("named", {"inputs": {"a": [[1, 2]]}}),
    *(ask("kinds", {"inputs": {"x": [1]}, "params": {"kind": kind}}) for kind in KINDS),
]


def answer(url: str, case: Case) -> Dict[str, Any]:
    """Sends a request, and returns status, content type and text of its answer."""
    body = case["body"].encode() if case["method"] == "POST" else None
    headers = {"Content-Type": case["content_type"]}
    request = urllib.request.Request(url + case["path"], body, headers, method=case["method"])
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        text = response.read().decode()
        return {"status": response.status, "content_type": response.headers["content-type"], "text": normal(text)}


def normal(text: str) -> str:
    """Returns a text without what may differ: tracebacks, and the order in which Python writes a set."""
    if text.startswith('{"error_code"'):
        told = json.loads(text)
        told.pop("stack_trace", None)
        text = json.dumps(told)
    return re.sub(r"\{('\w+'(?:, '\w+')*)\}", lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text)


def record(models: pathlib.Path, model: str, cases: List[Case]) -> None:
    """Records the answers of MLflow's scoring server for one model of a folder."""
    from generate import free_port

    port = free_port()
    environment = {**os.environ, "__pyfunc_model_path__": str(models / model / "model")}
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "mlflow.pyfunc.scoring_server.app:app"]
    server = subprocess.Popen(command, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        while server.poll() is None:
            try:
                urllib.request.urlopen(f"{url}/ping", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        for case in cases:
            case["answer"] = answer(url, case)
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    """Records all answers."""
    sys.path.insert(0, str(FILE.parents[3] / "goldens"))
    from archive import unpack

    with tempfile.TemporaryDirectory() as scratch:
        unpack(FILE.parent / "models.tar.gz", pathlib.Path(scratch))
        for model in dict.fromkeys(case["model"] for case in CASES):
            record(pathlib.Path(scratch), model, [case for case in CASES if case["model"] == model])
    lines = ",\n".join(f" {json.dumps(case)}" for case in CASES)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
