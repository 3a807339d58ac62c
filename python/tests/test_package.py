"""Imports and exported names of the package."""

import importlib
import json
import pathlib
import subprocess
import sys
from typing import List

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

MODULES = [
    "mlserver",
    "mlserver.model",
    "mlserver.settings",
    "mlserver.types",
    "mlserver.types.dataplane",
    "mlserver.types.model_repository",
    "mlserver.codecs",
    "mlserver.codecs.base",
    "mlserver.codecs.string",
    "mlserver.codecs.numpy",
    "mlserver.codecs.pandas",
    "mlserver.codecs.base64",
    "mlserver.codecs.datetime",
    "mlserver.codecs.json",
    "mlserver.codecs.lists",
    "mlserver.codecs.utils",
    "mlserver.codecs.errors",
    "mlserver.codecs.decorator",
    "mlserver.errors",
    "mlserver.handlers",
    "mlserver.handlers.custom",
    "mlserver.logging",
    "mlserver.context",
    "mlserver.metrics",
    "mlserver.metrics.errors",
    "mlserver.metrics.registry",
    "mlserver.utils",
    "mlserver.version",
    "mlserver.repository",
    "mlserver.repository.repository",
    "mlserver.repository.factory",
    "mlserver.repository.load",
    "mlserver.registry",
    "mlserver.raw",
    "mlserver.parallel.errors",
    "mlserver.kafka.errors",
    "mlserver.batching.hooks",
    "mlserver.rest.responses",
    "mlserver.scoring",
    "mlserver.spark",
    "mlserver.ray",
    "mlserver.dask",
    "mlserver.testing",
]


def python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, text=True, timeout=60)
    return run.stdout


def loaded_by(imports: List[str]) -> List[str]:
    code = f"import {', '.join(['sys', 'json', *imports])}; print(json.dumps(list(sys.modules)))"
    return sorted({name.partition(".")[0] for name in json.loads(python(code))})


def test_import_loads_only_standard_library() -> None:
    if sys.version_info < (3, 10):
        pytest.skip("needs sys.stdlib_module_names")
    site = {name for name in loaded_by([]) if name not in sys.stdlib_module_names}
    found = {name for name in loaded_by(MODULES) if name not in sys.stdlib_module_names}
    assert found - site - {"__main__"} == {"mlserver"}


@pytest.mark.parametrize("name", MODULES)
def test_exported_names_exist(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public)


def test_submodules_are_importable_from_package() -> None:
    code = "import mlserver; print(mlserver.utils.generate_uuid().count('-'), mlserver.errors.MLServerError('x').status_code)"
    assert python(code) == "4 400\n"
    with pytest.raises(AttributeError):
        _ = importlib.import_module("mlserver").no_such_thing


def test_sdk_version_matches_crate_version() -> None:
    manifest = (PACKAGE.parent / "Cargo.toml").read_text(encoding="utf-8")
    line = next(line for line in manifest.splitlines() if line.startswith("version"))
    assert importlib.import_module("mlserver.version").__version__ == line.split('"')[1]
