"""Measures what OpenAI's API adds to a model in Python: one text as an embedding, and the first chunk of a stream.

    cargo build --profile dist
    python3.11 benches/serving/openai_api.py target/dist/mlserver

One request at a time over one kept connection, in turns: `POST /v2/models/NAME/infer` (JSON, and with binary output), and
`/openai/v1/embeddings` of the same model by its settings and by a method, as numbers and as base64. Each embedding has 768
numbers. The time that the model itself took, by the same monotonic clock, is taken off that to the first chunk. Medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from run import Failed, Program, machine, running

WARM_UP = 100
MODEL = """
import struct
import time

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

NUMBERS = [struct.unpack("f", struct.pack("f", index / 383.5 - 1))[0] for index in range(768)]


class Model(MLModel):
    async def predict(self, payload):
        output = ResponseOutput(name="embedding", shape=[1, 768], datatype="FP32", data=NUMBERS)
        return InferenceResponse(model_name=self.name, outputs=[output])


class Method(Model):
    async def create_embedding(self, request):
        return {"data": [{"embedding": NUMBERS}]}

    async def create_chat_completion(self, request):
        return self.chunks(time.monotonic())

    async def chunks(self, called):
        # the time that passed until the model had its first chunk, and when it had it
        yield {"choices": [{"delta": {"role": "assistant", "content": f"{called} {time.monotonic()}"}}]}
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}
"""

INFER = json.dumps(
    {"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a text of a few words"]}]}
)
BINARY = INFER[:-1] + ', "parameters": {"binary_data_output": true}}'
CHAT = json.dumps(
    {"model": "method", "stream": True, "messages": [{"role": "user", "content": "a text of a few words"}]}
)


def embedding(model: str, encoding: str) -> str:
    return json.dumps({"model": model, "input": "a text of a few words", "encoding_format": encoding})


CASES = {
    "V2 infer, JSON": ("/v2/models/settings/infer", INFER),
    "V2 infer, binary output": ("/v2/models/settings/infer", BINARY),
    "embeddings by settings, numbers": ("/openai/v1/embeddings", embedding("settings", "float")),
    "embeddings by settings, base64": ("/openai/v1/embeddings", embedding("settings", "base64")),
    "embeddings by a method, numbers": ("/openai/v1/embeddings", embedding("method", "float")),
    "embeddings by a method, base64": ("/openai/v1/embeddings", embedding("method", "base64")),
}


def write_models(folder: Path) -> Path:
    extra = {"openai": {"embeddings": {"input": "text", "output": "embedding"}}}
    for name, settings in {
        "settings": {"implementation": "models.Model", "parameters": {"extra": extra}},
        "method": {"implementation": "models.Method"},
    }.items():
        model = folder / "models" / name
        model.mkdir(parents=True)
        (model / "models.py").write_text(MODEL)
        (model / "model-settings.json").write_text(json.dumps({"name": name, **settings}))
    return folder / "models"


def post(connection: http.client.HTTPConnection, path: str, body: str) -> http.client.HTTPResponse:
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise Failed(f"{path} was answered {response.status}: {response.read()[:300]!r}")
    return response


def first_chunk(connection: http.client.HTTPConnection) -> tuple[float, float]:
    """The seconds until the first chunk of a stream came, and those of them that the model took."""
    began = time.monotonic()
    response = post(connection, "/openai/v1/chat/completions", CHAT)
    line = response.readline()
    took = time.monotonic() - began
    called, had = json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]["content"].split()
    response.read()
    return took, float(had) - float(called)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what OpenAI's API adds to a model in Python.")
    parser.add_argument("executable", type=Path, help="ours, built with `--profile dist`")
    parser.add_argument("--requests", type=int, default=3000, help="requests of each kind")
    args = parser.parse_args()
    print(machine())
    times: dict[str, list[float]] = {name: [] for name in CASES}
    chunks, models = [], []
    try:
        with tempfile.TemporaryDirectory() as name:
            command = [str(args.executable.resolve()), "start", str(write_models(Path(name)))]
            with running(Program("ours", lambda _: command), Path(name)) as server:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                # the first requests warm up
                for turn in range(-WARM_UP, args.requests):
                    for case, (path, body) in CASES.items():
                        began = time.monotonic()
                        post(connection, path, body).read()
                        if turn >= 0:
                            times[case].append(time.monotonic() - began)
                    took, of_model = first_chunk(connection)
                    if turn >= 0:
                        chunks.append(took)
                        models.append(of_model)
    except Failed as error:
        sys.exit(f"error: {error}")
    base = statistics.median(times["V2 infer, JSON"])
    for case, measured in times.items():
        median = statistics.median(measured)
        print(f"{case}: {median * 1e6:.0f} µs, {median / base:.2f} of V2 infer as JSON")
    above = statistics.median(took - of_model for took, of_model in zip(chunks, models, strict=True))
    print(f"first chunk of a stream: {statistics.median(chunks) * 1e6:.0f} µs, {above * 1e6:.0f} µs above the model's")


if __name__ == "__main__":
    main()
