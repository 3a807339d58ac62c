"""Pipelines of transformers: their settings, and the answers to each element of a batch."""

import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import golden_models, need, reasons, run_example, serve, settings, suite

suite("huggingface")

IMPLEMENTATION = "mlserver_huggingface.HuggingFaceRuntime"
MODELS = golden_models("huggingface")
TEXTS = [
    "the cat was good",
    "i hate it",
    "a great movie !",
    "not very bad",
    "we like the town",
    "awful",
    "the dog , the cat",
]


def described(folder, name, task="text-classification", model="feelings", extra=None, **top):
    """Copies a model to a folder, with another name and other settings."""
    target = folder / name
    shutil.copytree(MODELS / model, target)
    text = {"name": name, "implementation": IMPLEMENTATION, **top}
    text["parameters"] = {"uri": "./model", "extra": {"task": task, **(extra or {})}}
    (target / "model-settings.json").write_text(json.dumps(text))


def ask(server, model, name, *texts, few=False):
    """Returns the shape and the data of the answer to some texts, which may be only a few words long."""
    body = {"inputs": [{"name": name, "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}]}
    if few:
        raw = {"datatype": "INT64", "shape": [1], "data": [3], "parameters": {"content_type": "raw"}}
        body["inputs"].append({"name": "max_new_tokens", **raw})
    answer = server.post(f"/v2/models/{model}/infer", body)
    assert answer.status == 200, answer.body
    (output,) = answer.json()["outputs"]
    return output["shape"], [json.loads(item) for item in output["data"]]


def close(first, second):
    """Returns whether two answers have the same labels and, except for rounding in batches, the same scores."""
    return first["label"] == second["label"] and abs(first["score"] - second["score"]) < 1e-5


def test_batch_answers_every_element_in_order(tmp_path):
    need("huggingface")
    described(tmp_path, "alone")
    described(tmp_path, "batched", max_batch_size=8, max_batch_time=0.5)
    described(tmp_path, "blanks", "fill-mask", "blanks", max_batch_size=8)
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        expected = [ask(server, "alone", "args", text)[1][0] for text in TEXTS]
        assert len({answer["score"] for answer in expected}) == len(TEXTS), "the answers tell texts apart"

        shape, found = ask(server, "alone", "args", *TEXTS)
        assert (shape, len(found)) == ([7, 1], 7)
        assert all(map(close, found, expected))
        with ThreadPoolExecutor(len(TEXTS)) as threads:
            answers = list(threads.map(lambda text: ask(server, "batched", "args", text), TEXTS))
        assert [shape for shape, _ in answers] == [[1, 1]] * len(TEXTS)
        assert all(close(items[0], one) for (_, items), one in zip(answers, expected))
        # Concurrent requests of several texts get their own answers, too.
        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(lambda texts: ask(server, "batched", "args", *texts), [TEXTS[:3], TEXTS[3:]])
        assert (first[0], second[0]) == ([3, 1], [4, 1])
        assert all(map(close, first[1] + second[1], expected))
        # A single text would be answered with one row for each candidate word.
        shape, found = ask(server, "blanks", "array_inputs", "the [MASK] sat")
        assert shape == [1, 1]
        assert [word["token_str"] for word in found[0]] != []
        assert ask(server, "blanks", "array_inputs", "the [MASK] sat", "i like [MASK]")[0] == [2, 1]
    finally:
        server.stop()


def test_concurrent_requests_share_batches(tmp_path):
    need("huggingface")
    described(tmp_path, "batched", max_batch_size=8, max_batch_time=0.5)
    server = serve(tmp_path, sys.executable, MLSERVER_METRICS_ENDPOINT="/metrics", MLSERVER_METRICS_PORT="0")
    try:
        server.wait_until_ready()
        ask(server, "batched", "args", "the cat")
        with ThreadPoolExecutor(len(TEXTS)) as threads:
            list(threads.map(lambda text: ask(server, "batched", "args", text), TEXTS))
        import urllib.request

        with urllib.request.urlopen(f"{server.announced('Metrics')}/metrics") as response:
            text = response.read().decode()
        batches = int(re.search(r"^model_infer_batch_rows_count{.*} (\d+)", text, re.MULTILINE)[1])
        rows = int(re.search(r"^model_infer_batch_rows_sum{.*} (\d+)", text, re.MULTILINE)[1])
        assert rows == len(TEXTS) + 1
        assert batches < rows, text
    finally:
        server.stop()


def test_openai_endpoints_are_answered_by_pipelines(tmp_path):
    need("huggingface")
    completions = {"completions": {"input": "args", "output": "output"}}
    described(tmp_path, "writer", "text-generation", "stories", {"openai": completions})
    # Unless the model says otherwise, pipelines of transformers 5 choose 256 tokens by chance, for which it has no positions.
    path = tmp_path / "writer/model/generation_config.json"
    certain = {"max_new_tokens": 4, "do_sample": False}
    path.write_text(json.dumps({**json.loads(path.read_text()), **certain}))
    embeddings = {"embeddings": {"input": "args", "output": "output", "pooling": "mean", "normalize": True}}
    described(tmp_path, "vectors", "feature-extraction", "feelings", {"openai": embeddings})
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()

        def post(path, body):
            answer = server.post(f"/openai/v1/{path}", body)
            assert answer.status == 200, answer.body
            return answer.json()

        _, [made] = ask(server, "writer", "args", "the cat")
        answer = post("completions", {"model": "writer", "prompt": ["the cat"]})
        made = made[0] if isinstance(made, list) else made
        assert [choice["text"] for choice in answer["choices"]] == [made["generated_text"]]
        answer = post("embeddings", {"model": "vectors", "input": TEXTS})
        vectors = [item["embedding"] for item in answer["data"]]
        assert len(vectors) == len(TEXTS)
        assert len({len(vector) for vector in vectors}) == 1
        assert all(abs(sum(number * number for number in vector) - 1) < 1e-4 for vector in vectors)
        _, [tokens] = ask(server, "vectors", "args", TEXTS[0])
        tokens = tokens[0] if isinstance(tokens[0][0], list) else tokens
        mean = [sum(column) / len(tokens) for column in zip(*tokens)]
        length = sum(number * number for number in mean) ** 0.5
        assert all(abs(found - wanted / length) < 1e-4 for found, wanted in zip(vectors[0], mean))
    finally:
        server.stop()


def test_settings_from_environment_and_seldon_core(tmp_path):
    need("huggingface")
    shutil.copytree(MODELS / "feelings/model", tmp_path / "m/model")
    text = {"name": "m", "implementation": IMPLEMENTATION, "parameters": {"extra": {"task": "nonsense"}}}
    (tmp_path / "m/model-settings.json").write_text(json.dumps(text))
    unit = [{"name": "task", "value": "sentiment-analysis", "type": "STRING"}]
    unit.append({"name": "intra_op_threads", "value": "1", "type": "INT"})
    variables = {"MLSERVER_MODEL_HUGGINGFACE_PRETRAINED_MODEL": "./model", "MLSERVER_MODEL_HUGGINGFACE_FRAMEWORK": "pt"}
    variables["PREDICTIVE_UNIT_PARAMETERS"] = json.dumps(unit)
    server = serve(tmp_path, sys.executable, **variables)
    try:
        server.wait_until_ready()
        assert ask(server, "m", "args", "the cat")[1][0]["label"] in ("POSITIVE", "NEGATIVE")
        assert [tensor["name"] for tensor in server.get("/v2/models/m").json()["inputs"]] == ["args"]
    finally:
        server.stop()
    for value, kind, expected in [
        ("x", "INT", "Bad model parameter: device with value x can't be parsed as a INT"),
        ("1", "LONG", "Bad model parameter type: LONG. Only valid types are INT, FLOAT, DOUBLE, STRING, BOOL."),
    ]:
        variables["PREDICTIVE_UNIT_PARAMETERS"] = json.dumps([{"name": "device", "value": value, "type": kind}])
        assert reasons(tmp_path, sys.executable, **variables) == {"m": expected}


def test_failed_load_reports_the_reason(tmp_path):
    need("huggingface")
    described(tmp_path, "untold", task="")
    described(tmp_path, "unknown", task="cooking")
    described(tmp_path, "labels", "zero-shot-classification", "topics", max_batch_size=4, max_batch_time=0.1)
    described(tmp_path, "mistyped", extra={"optimum_model": "perhaps"})
    described(tmp_path, "framework", extra={"framework": "jax"})
    settings(tmp_path / "missing", IMPLEMENTATION, "./nope", task="fill-mask")
    settings(tmp_path / "empty", IMPLEMENTATION, "./empty", task="fill-mask").joinpath("empty").mkdir()
    nothing = {"name": "nothing", "implementation": IMPLEMENTATION, "parameters": {"uri": ".", "extra": None}}
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing/model-settings.json").write_text(json.dumps(nothing))
    found = reasons(tmp_path, Path(sys.executable))
    assert found.pop("nothing") == "Missing HuggingFace Runtime settings."
    assert found.pop("missing") == f"Invalid URI specified for model missing ({tmp_path}/missing/nope)"
    assert found.pop("mistyped").startswith(
        "invalid `parameters.extra`: `optimum_model`: Input should be a valid boolean"
    )
    assert found.pop("labels") == (
        "`zero-shot-classification` cannot be batched: the labels of several requests would be mixed; "
        "set `max_batch_time` to 0"
    )
    for name, start in {
        "untold": r"Invalid transformer task: \. Available tasks: \[.*'fill-mask'",
        "unknown": r"Invalid transformer task: cooking\. Available tasks: \[.*'fill-mask'",
        "framework": r"(cannot load `.*`: |the installed transformers does not support framework `jax`)",
        "empty": rf"cannot load `{tmp_path}/empty/empty`: \w+: .*",
    }.items():
        assert re.match(start, found.pop(name), re.DOTALL), name
    assert found == {}


def test_model_without_padding_takes_single_texts(tmp_path):
    """Its tokenizer has no padding token, and its settings have no end-of-text token to use instead."""
    need("huggingface")
    described(tmp_path, "stories", "text-generation", "stories", max_batch_size=4)
    described(tmp_path, "endless", "text-generation", "stories", max_batch_size=4)
    for file in ("config.json", "generation_config.json"):
        path = tmp_path / "endless/model" / file
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": None}))
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        assert ask(server, "stories", "array_inputs", "the cat", "i like the", few=True)[0] == [2, 1]
        assert ask(server, "endless", "array_inputs", "the cat", "i like the", few=True)[0] == [2, 1]
        assert "model `./model` takes one element at a time" in server.log.read_text()
    finally:
        server.stop()


def test_example_readme_commands_work(tmp_path):
    need("huggingface")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    run_example(tmp_path, "huggingface")


def test_optimum_answers_match_transformers(tmp_path):
    """`optimum_model` runs the same model on the ONNX runtime."""
    need("huggingface")
    pytest.importorskip("optimum.pipelines", exc_type=ImportError)
    described(tmp_path, "torch")
    described(tmp_path, "onnx", extra={"optimum_model": True})
    server = serve(tmp_path, sys.executable)
    try:
        server.wait_until_ready()
        shape, expected = ask(server, "torch", "args", *TEXTS)
        found = ask(server, "onnx", "args", *TEXTS)
        assert found[0] == shape
        assert all(map(close, found[1], expected))
    finally:
        server.stop()
