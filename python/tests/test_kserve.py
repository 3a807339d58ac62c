"""The `kserve` module for environments without the package."""

import importlib
import json
import pathlib
import random
import subprocess
import sys
from typing import Any, Dict, Iterator, Tuple

import pytest
from mlserver import _kserve_imports
from mlserver._kserve.errors import InferenceError, InvalidInput
from mlserver._kserve.protocol.infer_type import InferRequest, InferResponse

HERE = pathlib.Path(__file__).resolve()
PACKAGE = HERE.parents[1]

#: The modules that models and scripts of KServe import.
MODULES = [
    "",
    ".constants",
    ".constants.constants",
    ".context",
    ".errors",
    ".inference_client",
    ".utils.inference_client_factory",
    ".logging",
    ".metrics",
    ".model",
    ".model_repository",
    ".model_server",
    ".predictor_config",
    ".protocol",
    ".protocol.grpc",
    ".protocol.infer_type",
    ".protocol.rest",
    ".utils",
    ".utils.numpy_codec",
    ".utils.utils",
]


@pytest.fixture(autouse=True)
def _importable() -> Iterator[None]:
    before = list(sys.meta_path)
    _kserve_imports.install()
    yield
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "kserve"]:
        del sys.modules[name]


def python(code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs code in an interpreter of its own."""
    path = environment.pop("path", "")
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env={"PYTHONPATH": f"{path}:{PACKAGE}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_same_under_both_names(name: str) -> None:
    importlib.import_module("kserve")
    theirs = importlib.import_module("kserve" + name)

    ours = importlib.import_module("mlserver._kserve" + name)

    assert theirs is ours
    assert ours.__spec__ is not None
    assert ours.__spec__.name == "mlserver._kserve" + name


@pytest.mark.needs("grpc")
@pytest.mark.parametrize("name", ["grpc_predict_v2_pb2", "grpc_predict_v2_pb2_grpc"])
def test_messages_are_those_of_sdk(name: str) -> None:
    from mlserver.grpc import dataplane_pb2

    module = importlib.import_module(f"kserve.protocol.grpc.{name}")

    assert module is importlib.import_module(f"mlserver._kserve.protocol.grpc.{name}")
    if name == "grpc_predict_v2_pb2":
        assert module.ModelInferRequest is dataplane_pb2.ModelInferRequest


def test_attributes_are_modules_that_package_exports() -> None:
    kserve = importlib.import_module("kserve")
    importlib.import_module("kserve.utils.utils")
    importlib.import_module("kserve.constants.constants")

    # As in the original, the attribute hides the package of the same name.
    assert kserve.utils.generate_uuid() != kserve.utils.generate_uuid()
    assert kserve.constants.PredictorProtocol.REST_V1.value == "v1"


def test_unknown_module_is_missing() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"No module named 'kserve\.api_client': .*install the `kserve` package"
    ):
        importlib.import_module("kserve.api_client")
    kserve = importlib.import_module("kserve")
    assert not hasattr(kserve, "KServeClient")
    with pytest.raises(ImportError, match="cannot import name 'KServeClient'"):
        exec("from kserve import KServeClient", {})


def test_real_package_comes_first(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kserve").mkdir()
    (tmp_path / "kserve" / "__init__.py").write_text("Model = 'real'\n")
    code = """
import mlserver._kserve_imports, mlserver._kserve
mlserver._kserve_imports.install()
import kserve
assert kserve.Model == "real", kserve
try:
    import kserve.model
except ModuleNotFoundError:
    print("missing")
"""

    done = python(code, path=str(tmp_path))

    assert (done.returncode, done.stdout) == (0, "missing\n"), done.stderr


def test_package_needs_standard_library_only() -> None:
    code = """
import sys
before = set(sys.modules)
import mlserver._kserve_imports
mlserver._kserve_imports.install()
import kserve, kserve.errors, kserve.utils.utils, kserve.protocol.infer_type
print(sorted({"numpy", "pandas", "google", "grpc", "pydantic"} & set(sys.modules)))
"""

    done = python(code)

    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_script_outside_of_server_says_how_to_run_it() -> None:
    code = """
import mlserver._kserve_imports
mlserver._kserve_imports.install()
import kserve
model = kserve.Model("m")
model.load()
kserve.ModelServer().start([model])
"""

    done = python(code)

    assert done.returncode == 1
    assert "mlserver start SCRIPT.py" in done.stderr


def message(*tensors: Dict[str, Any], tail: bytes = b"") -> Tuple[bytes, int]:
    body = json.dumps({"id": "7", "model_name": "m", "inputs": list(tensors), "outputs": list(tensors)}).encode()
    return body + tail, len(body)


def raw_tensor(datatype: str, size: Any) -> Dict[str, Any]:
    return {"name": "t", "shape": [2], "datatype": datatype, "parameters": {"binary_data_size": size}}


@pytest.mark.needs("numpy", "grpc")
def test_contents_of_grpc_are_data() -> None:
    """KServe documents them for inputs and outputs, but its own methods fail with them."""
    from kserve.protocol.grpc.grpc_predict_v2_pb2 import InferTensorContents
    from kserve.protocol.infer_type import InferInput, InferOutput, InferRequest

    numbers, texts = InferTensorContents(int_contents=[1, 2]), InferTensorContents(bytes_contents=[b"a"])
    for cls in (InferInput, InferOutput):
        assert cls("x", [2], "INT32", numbers).as_numpy().tolist() == [1, 2]
    inputs = [InferInput("x", [2], "INT32", numbers), InferInput("y", [1], "BYTES", texts)]
    request = InferRequest("m", inputs)
    assert request.to_rest()[0]["inputs"][0]["data"] == [1, 2]
    assert list(request.to_grpc().inputs[1].contents.bytes_contents) == [b"a"]


@pytest.mark.needs("numpy")
def test_damaged_messages_are_invalid_input() -> None:
    """Bytes and lengths of messages come from clients and predictors."""
    chance = random.Random(7)
    text = b"\x01\x00\x00\x00a\x01\x00\x00\x00b"
    good, length = message(raw_tensor("BYTES", 10), raw_tensor("FP32", 8), raw_tensor("BOOL", 2), tail=text + bytes(10))
    outcomes = {"read": 0, "rejected": 0}
    for _ in range(3000):
        damaged = bytearray(good)
        for _ in range(chance.choice([0, 1, 1, 2, 8])):
            position = chance.randrange(len(damaged))
            if chance.random() < 0.3:
                del damaged[position]
            else:
                damaged[position] = chance.choice(b'0919[]{},"-xe\x00\xff')
        claimed = length + chance.choice([0, 0, 0, 1, -1, -length, 10**9])
        for read in (InferRequest.from_bytes, InferResponse.from_bytes):
            arguments = ("m",) if read == InferRequest.from_bytes else ()
            try:
                found = read(bytes(damaged), claimed, *arguments)  # type: ignore[operator]
                for tensor in getattr(found, "inputs", None) or getattr(found, "outputs", ()):
                    tensor.as_numpy()
                found.to_rest()
                outcomes["read"] += 1
            except (InvalidInput, InferenceError):
                outcomes["rejected"] += 1

    assert min(outcomes.values()) > 500, outcomes


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"inputs":' * 100_000, b'{"inputs":[' + b"9" * 100_000, b"\xff\xfe{}", b'{"inputs":[[[]]]}'],
)
def test_hostile_messages_are_invalid_input(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        InferRequest.from_bytes(body, len(body), "m")
    with pytest.raises(InvalidInput):
        InferResponse.from_bytes(body, len(body))
