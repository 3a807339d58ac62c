#!/usr/bin/env python3
"""Takes over the examples of MLServer's manual, and compares the answers of both servers.

    tests/oracle/manual.py FOLDER_OF_ENVIRONMENT

The environment has `mlserver==1.7.1` and `mlserver-sklearn==1.7.1`. Both servers serve the same, unchanged folders, and ours
runs models in Python in the same environment, with the original installed in it. Exits with 1 if answers differ and no rule
below names the difference.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
PATIENCE = 120
PORTS = ("HTTP", "GRPC", "METRICS")

#: Trains the models of "Serving Scikit-Learn models" and "Multi-Model Serving".
TRAIN = """
import json, joblib
from sklearn import datasets, linear_model, svm

digits = datasets.load_digits()
rows = digits.images.reshape((len(digits.images), -1))
classifier = svm.SVC(gamma=0.001).fit(rows[::2], digits.target[::2])
joblib.dump(classifier, "digits/mnist-svm.joblib")
joblib.dump(classifier, "many/digits/model.joblib")
flowers, kinds = datasets.load_iris(return_X_y=True)
joblib.dump(linear_model.LogisticRegression(max_iter=500).fit(flowers, kinds), "many/flowers/model.joblib")
for name, data in [("digits", rows[1::600]), ("flowers", flowers[::50])]:
    tensor = {"name": "predict", "shape": list(data.shape), "datatype": "FP32", "data": data.ravel().tolist()}
    json.dump({"inputs": [tensor]}, open(f"{name}.json", "w"))
"""
SKLEARN = "mlserver_sklearn.SKLearnModel"
WHERE = """
import sys
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceResponse

class Where(MLModel):
    async def predict(self, payload):
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("where", [sys.prefix])])
"""
#: The examples of this repository that are those of the manual, and need no other packages.
EXAMPLES = ["custom-handlers", "custom-metrics", "custom-runtime", "decode-args", "headers", "json-model", "streaming-text"]


def write(folder, path, content):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def examples(folder, environment):
    """Yields a name, a folder and the calls of each example."""
    settings = {"implementation": SKLEARN, "parameters": {"version": "v0.1.0"}}
    write(folder, "digits/settings.json", {"debug": "true"})
    named = {"uri": "./mnist-svm.joblib", "version": "v0.1.0"}
    write(folder, "digits/model-settings.json", {**settings, "name": "mnist-svm", "parameters": named})
    for name in ("digits", "flowers"):
        write(folder, f"many/{name}/model-settings.json", {**settings, "name": name})
    subprocess.run([environment / "bin/python", "-c", TRAIN], cwd=folder, check=True)
    digits, flowers = (json.loads((folder / f"{name}.json").read_text()) for name in ("digits", "flowers"))
    probabilities = {**flowers, "outputs": [{"name": "predict"}, {"name": "predict_proba"}]}
    path = "/v2/models/mnist-svm"
    calls = [("POST", f"{path}/versions/v0.1.0/infer", digits), ("GET", path, None), ("GET", f"{path}/ready", None)]
    yield "Serving Scikit-Learn models", folder / "digits", calls
    calls = [("POST", "/v2/models/digits/infer", digits), ("POST", "/v2/models/flowers/infer", probabilities)]
    yield "Multi-Model Serving", folder / "many", calls
    index = ("POST", "/v2/repository/index", {})
    unload, load = (("POST", f"/v2/repository/models/flowers/{verb}", None) for verb in ("unload", "load"))
    ask = ("POST", "/v2/models/flowers/infer", flowers)
    yield "Model Repository API", folder / "many", [index, unload, index, ask, load, ask]
    write(folder, "where/models.py", WHERE)
    own = {"environment_path": str(environment)}
    write(folder, "where/model-settings.json", {"name": "where", "implementation": "models.Where", "parameters": own})
    text = {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
    yield "Custom Conda environments", folder / "where", [("POST", "/v2/models/where/infer", text)]
    for name in EXAMPLES:
        cases = json.loads((ROOT / "examples" / name / "cases.json").read_text())
        calls = [(case.get("method", "POST"), case["path"], case["body"]) for case in cases if "body" in case]
        yield name, ROOT / "examples" / name, calls


@contextlib.contextmanager
def served(command, folder, environment, scratch):
    """Yields the address of a server."""
    first = 20000 + os.getpid() % 20000
    ports = {f"MLSERVER_{name}_PORT": str(first + offset) for offset, name in enumerate(PORTS)}
    variables = {**os.environ, **ports, "MLSERVER_HOST": "127.0.0.1", "NO_PROXY": "*"}
    variables["PATH"] = f"{environment}/bin:{variables['PATH']}"
    log = scratch / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [command, "start", folder], cwd=scratch, env=variables, stdout=output, stderr=output, start_new_session=True
        )
    address = f"http://127.0.0.1:{first}"
    try:
        end = time.monotonic() + PATIENCE
        while call(address, "GET", "/v2/health/ready", None)[0] != 200:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        # The original leaves processes behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def call(address, method, path, body):
    """Returns the status and the body of an answer, without generated ids."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"}, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    except OSError:
        return 0, None
    text = answer.read().decode()
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            value.pop("id", None)
        return answer.status, value
    return answer.status, text


def is_same(left, right):
    if isinstance(left, float) or isinstance(right, float):
        return abs(left - right) <= 1e-6 * max(1, abs(left))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(is_same, left, right))
    return left == right


def intended(theirs, ours):
    """Returns why answers may differ, as `docs/compatibility.md` describes it; `None` if they may not."""
    if theirs[0] != ours[0] or not isinstance(ours[1], dict):
        return None
    if theirs[1] == "" and ours[1].get("ready") is True:
        return "bodies of readiness routes"
    if not isinstance(theirs[1], dict):
        return None
    parameters = dict(ours[1].get("parameters") or {})
    if parameters.pop("backend", None) and is_same(theirs[1], {**ours[1], "parameters": parameters}):
        return "`backend` in the metadata"
    if ours[0] >= 400 and ours[1].keys() == {"error"}:
        if re.sub(r"^[\w.]+: ", "", theirs[1].get("error", "")) == ours[1]["error"]:
            return "worker's prefix of messages"
        if "detail" in theirs[1]:
            return "one shape of failures"
    return None


def main():
    environment = Path(sys.argv[1]).resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for name, folder, calls in examples(scratch, environment):
            answers = []
            for command in (environment / "bin/mlserver", OURS):
                with served(command, folder, environment, scratch) as address:
                    answers.append([call(address, *one) for one in calls])
            for (method, path, _), theirs, ours in zip(calls, *answers):
                reason = "same" if is_same(theirs, ours) else intended(theirs, ours)
                print(f"{name}: {method} {path}: {reason or 'DIFFERENT'}", flush=True)
                if reason is None:
                    print(f"  theirs: {theirs}\n  ours:   {ours}")
                    failed += 1
    print(f"{failed} unintended differences")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
