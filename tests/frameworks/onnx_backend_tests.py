"""Runs the node tests of the `onnx` package through the server.

    MLSERVER_BIN=target/debug/mlserver python tests/frameworks/onnx_backend_tests.py
    python tests/frameworks/onnx_backend_tests.py --only "^test_argmax" --backend python
    python tests/frameworks/onnx_backend_tests.py --all               # also operators that the tables do not have

Each test is a model of one repository. Inputs are sent by name as binary tensors over REST, and the outputs are compared with
those that the package expects. Tests with values that the protocol cannot carry are counted and named. The exit status is 1 if
an answer differs, or if a request fails.
"""

import argparse
import collections
import json
import pathlib
import re
import struct
import sys
import tempfile
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "clients"),
    str(HERE.parent / "goldens"),
    str(HERE.parents[1] / "examples"),
]

import numpy

IMPLEMENTATION = "mlserver_onnx.OnnxModel"
KINDS = {
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bool": "BOOL",
    "object": "BYTES",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
#: The operators of `ai.onnx` that the server evaluates itself, besides all of `ai.onnx.ml`.
TABLES = frozenset(
    re.findall(
        r"\w+",
        """
    Abs Add And ArgMax ArgMin Cast Ceil Clip Compress Concat Constant ConstantOfShape CumSum Div Einsum Equal Erf Exp Expand
    Flatten Floor Gather GatherElements GatherND Gemm Greater GreaterOrEqual Identity IsNaN Less LessOrEqual Log LogSoftmax
    LpNormalization MatMul Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceL1 ReduceL2
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements
    ScatterND Shape Sigmoid Sign Size Slice Softmax Split Sqrt Squeeze StringNormalizer Sub Sum Tanh TfIdfVectorizer Tile
    TopK Transpose Unsqueeze Where
    """,
    )
)


class NotCarried(Exception):
    """A value that the protocol has no datatype for."""


def text_kind(array: Any) -> str:
    """Returns the datatype of an array."""
    if not isinstance(array, numpy.ndarray):
        raise NotCarried(type(array).__name__)
    kind = "BYTES" if array.dtype.kind in "OUS" else KINDS.get(array.dtype.name)
    if kind is None:
        raise NotCarried(array.dtype.name)
    return kind


def as_array(value: Any, declared: Any) -> Any:
    """Returns a value of a test as an array."""
    if hasattr(value, "SerializeToString") and hasattr(value, "dims"):
        from onnx import numpy_helper

        value = numpy_helper.to_array(value)
    if isinstance(value, (list, tuple, dict)) or value is None or declared.type.WhichOneof("value") != "tensor_type":
        raise NotCarried(declared.type.WhichOneof("value") or type(value).__name__)
    array = numpy.asarray(value)
    text_kind(array)
    return array


def raw(array: Any) -> bytes:
    """Returns the binary data of an array."""
    if array.dtype.kind not in "OUS":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def ask(url: str, name: str, inputs: Dict[str, Any], outputs: List[str]) -> Dict[str, Any]:
    """Returns the arrays of a model's answer. Raises `ValueError` with the text of an error."""
    tensors, data = [], b""
    for key, array in inputs.items():
        part = raw(array)
        parameters = {"binary_data_size": len(part)}
        tensors.append(
            {"name": key, "shape": list(array.shape), "datatype": text_kind(array), "parameters": parameters}
        )
        data += part
    body: Dict[str, Any] = {"inputs": tensors, "outputs": [{"name": output} for output in outputs]}
    body["parameters"] = {"binary_data_output": True}
    head = json.dumps(body).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{url}/v2/models/{name}/infer", head + data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            length, content = int(response.headers["Inference-Header-Content-Length"]), response.read()
    except urllib.error.HTTPError as error:
        raise ValueError(f"{error.code}: {error.read().decode('utf-8', 'replace')[:200]}") from error
    found, offset = {}, length
    for output in json.loads(content[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = decoded(output, content[offset : offset + size])
        offset += size
    return found


def decoded(output: Dict[str, Any], data: bytes) -> Any:
    """Returns the array of an output."""
    if output["datatype"] != "BYTES":
        return numpy.frombuffer(data, dtype=DTYPES[output["datatype"]]).reshape(output["shape"])
    texts, offset = [], 0
    while offset < len(data):
        (size,) = struct.unpack_from("<I", data, offset)
        texts.append(data[offset + 4 : offset + 4 + size].decode())
        offset += 4 + size
    return numpy.array(texts, dtype=object).reshape(output["shape"])


def difference(found: Any, expected: Any, rtol: float, atol: float) -> Optional[str]:
    """Returns how an output differs; lists may be matrices of one column, and scalars lists of one element."""
    if text_kind(found) != text_kind(expected):
        return f"it is {text_kind(found)} instead of {text_kind(expected)}"
    shape = list(expected.shape)
    # As NumPy's codec shows them.
    shown = {0: [1], 1: [*shape, 1]}.get(len(shape), shape)
    if list(found.shape) not in (shape, shown):
        return f"it has the shape {list(found.shape)} instead of {shape}"
    found = found.reshape(expected.shape)
    if text_kind(expected) == "BYTES":
        wanted = [text.decode() if isinstance(text, bytes) else str(text) for text in expected.ravel().tolist()]
        return None if found.ravel().tolist() == wanted else f"it is {found.tolist()} instead of {wanted}"
    try:
        numpy.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return None


class Case:
    """A test of the package: a model, its inputs, and the outputs that are expected."""

    def __init__(self, test: Any) -> None:
        model = test.model
        self.name, self.model, self.rtol, self.atol = test.name, model, test.rtol, test.atol
        self.data: List[Tuple[Dict[str, Any], Dict[str, Any]]] = []
        for inputs, outputs in test.data_sets:
            given = {value.name: as_array(array, value) for value, array in zip(model.graph.input, inputs)}
            wanted = {value.name: as_array(array, value) for value, array in zip(model.graph.output, outputs)}
            self.data.append((given, wanted))

    def failure(self, url: str) -> Optional[str]:
        """Returns how the answers of the server differ."""
        for inputs, expected in self.data:
            try:
                found = ask(url, self.name, inputs, list(expected))
            except ValueError as error:
                return str(error)
            for name, array in expected.items():
                why = difference(found[name], array, self.rtol, self.atol)
                if why is not None:
                    return f"output `{name}`: {why}"
        return None


def is_of_tables(model: Any) -> bool:
    """Returns whether all operators of a model are those of the tables."""
    return all(node.domain == "ai.onnx.ml" or node.op_type in TABLES for node in model.graph.node)


def load(only: str, every: bool) -> Tuple[List[Case], Dict[str, List[str]]]:
    """Returns the tests, and the names of those that the protocol cannot carry, by the type of a value."""
    from onnx.backend.test.loader import load_model_tests

    cases, left_out = [], collections.defaultdict(list)
    for test in load_model_tests(kind="node"):
        if not re.search(only, test.name) or not (every or is_of_tables(test.model)):
            continue
        try:
            cases.append(Case(test))
        except NotCarried as reason:
            left_out[str(reason)].append(test.name)
    return cases, left_out


def main() -> None:
    """Runs the tests, and prints a report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression for the names of tests")
    parser.add_argument("--all", action="store_true", help="also tests of other operators")
    parser.add_argument("--backend", default="auto", choices=["auto", "native", "python"])
    options = parser.parse_args()
    from support import serve, settings

    cases, left_out = load(options.only, options.all)
    backends: collections.Counter[str] = collections.Counter()
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for case in cases:
            place = settings(folder / case.name, IMPLEMENTATION, "./model.onnx", backend=options.backend)
            (place / "model.onnx").write_bytes(case.model.SerializeToString())
        variables = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_EXIT_ON_LOAD_FAILURE": "false"}
        server = serve(folder, sys.executable, **variables)

        def loaded() -> Optional[List[Any]]:
            health = server.get("/v2/health/ready")
            models = health.json().get("models", []) if health.status != 200 else [{"state": "READY"}]
            return models if models and not any(each["state"] == "LOADING" for each in models) else None

        try:
            failed = {each.get("name"): each.get("reason") for each in server.wait_for(loaded, patience=600)}
            for case in cases:
                metadata = server.get(f"/v2/models/{case.name}")
                backend = metadata.json().get("parameters", {}).get("backend", "not loaded")
                backends[backend] += 1
                why = case.failure(server.url) if backend != "not loaded" else failed.get(case.name)
                if why is not None:
                    failures.append(f"{case.name} ({backend}): {why}")
        finally:
            server.stop()
    print("\n".join(failures))
    for reason, names in sorted(left_out.items()):
        print(f"\n{len(names)} tests with {reason}, which the protocol cannot carry: {', '.join(sorted(names))}")
    print(f"\n{len(cases)} tests: {dict(backends)}, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
