"""Sends NumPy arrays to ONNX models of the server, and reads the answers as arrays, bit by bit."""

import json
import struct
import urllib.error
import urllib.request
from typing import Any, Dict, List, NamedTuple, Optional

import numpy

#: The datatypes of the protocol by those of NumPy. The protocol has no others, apart from `BYTES`.
DATATYPES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
NUMPY = {datatype: name for name, datatype in DATATYPES.items()}
#: How long a request may take, in seconds.
PATIENCE = 120


class RefusedError(Exception):
    """The server answered with an error."""


class Output(NamedTuple):
    """An output of a model, with the labels of its columns if it has some."""

    values: numpy.ndarray
    labels: Optional[List[Any]]


def is_text(array: numpy.ndarray) -> bool:
    """Returns whether an array has texts."""
    return array.dtype.kind in "OSU"


def _text_bytes(array: numpy.ndarray) -> bytes:
    encoded = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel()]
    return b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def _texts(raw: bytes) -> List[str]:
    texts, offset = [], 0
    while offset < len(raw):
        (length,) = struct.unpack_from("<I", raw, offset)
        texts.append(raw[offset + 4 : offset + 4 + length].decode())
        offset += 4 + length
    return texts


def _answer(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            raise RefusedError(f"{error.code} {error.read().decode(errors='replace')[:400]}") from None


def infer(url: str, model: str, inputs: Dict[str, numpy.ndarray], outputs: List[str]) -> Dict[str, Output]:
    """Requests outputs by name, with binary tensors in both directions.

    Raises `RefusedError` if the server answers with an error.
    """
    declared, parts = [], []
    for name, array in inputs.items():
        raw = _text_bytes(array) if is_text(array) else numpy.ascontiguousarray(array).tobytes()
        datatype = "BYTES" if is_text(array) else DATATYPES[array.dtype.name]
        size = {"binary_data_size": len(raw)}
        declared.append({"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": size})
        parts.append(raw)
    named = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": declared, "outputs": named}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    body = b"".join([head, *parts])
    headers, body = _answer(urllib.request.Request(f"{url}/v2/models/{model}/infer", body, headers))
    length = int(headers.get("Inference-Header-Content-Length") or len(body))
    answer, offset, found = json.loads(body[:length]), length, {}
    for output in answer["outputs"]:
        parameters = output.get("parameters", {})
        size = parameters.get("binary_data_size")
        if size is None:
            values = numpy.array(output["data"], dtype=NUMPY.get(output["datatype"], object))
        elif output["datatype"] == "BYTES":
            values = numpy.array(_texts(body[offset : offset + size]), dtype=object)
        else:
            values = numpy.frombuffer(body[offset : offset + size], dtype=NUMPY[output["datatype"]])
        offset += size or 0
        found[output["name"]] = Output(values.reshape(output["shape"]), parameters.get("labels"))
    return found


def infer_json(url: str, model: str, inputs: Dict[str, numpy.ndarray], outputs: List[str]) -> Dict[str, List[Any]]:
    """Requests outputs by name in JSON, and returns their values in the order of rows.

    Missing numbers are `null`. Raises `RefusedError` if the server answers with an error.
    """
    declared = []
    for name, array in inputs.items():
        datatype = "BYTES" if is_text(array) else DATATYPES[array.dtype.name]
        data = [None if value != value else value for value in array.ravel().tolist()]
        declared.append({"name": name, "shape": list(array.shape), "datatype": datatype, "data": data})
    body = json.dumps({"inputs": declared, "outputs": [{"name": name} for name in outputs]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, {"Content-Type": "application/json"})
    answer = json.loads(_answer(request)[1])
    return {output["name"]: output["data"] for output in answer["outputs"]}


def metadata(url: str, model: str) -> Dict[str, Any]:
    """Returns the metadata of a model."""
    return json.loads(_answer(urllib.request.Request(f"{url}/v2/models/{model}"))[1])


def states(url: str) -> Optional[Dict[str, str]]:
    """Returns why each model that is not served failed, or `None` while models are loading."""
    try:
        with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=PATIENCE):
            return {}
    except urllib.error.HTTPError as error:
        with error:
            models = json.loads(error.read()).get("models", [])
    if not models or any(model["state"] not in ("READY", "FAILED") for model in models):
        return None
    return {model["name"]: model["reason"] for model in models if model["state"] == "FAILED"}
