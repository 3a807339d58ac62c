"""Modules and names of MLServer 1.7.1 that code may import."""

import importlib
import json
import pathlib
import pickle
import sys
from typing import Any, Dict, List, Optional

import pytest
from mlserver._legacy import _MODULES, Internal

#: The modules and public names of the original; see `goldens/list_names.py`.
NAMES: Dict[str, List[str]] = json.loads(
    (pathlib.Path(__file__).parent / "goldens" / "names.json").read_text(encoding="utf-8")
)


def _needs(module: str) -> Any:
    library = "grpc" if module.endswith("pb2_grpc") or module == "mlserver.grpc.utils" else "google.protobuf"
    return pytest.mark.needs(library) if "pb2" in module or "converters" in module or library == "grpc" else ()


@pytest.mark.parametrize("module", [pytest.param(module, marks=_needs(module)) for module in NAMES])
def test_every_name_of_original_can_be_imported(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in NAMES[module] if not hasattr(found, name)]
    assert missing == []


@pytest.mark.parametrize("module", list(_MODULES))
def test_every_name_of_table_exists(module: str) -> None:
    found = importlib.import_module(module)
    known = _MODULES[module]
    for name in [*known.internals.split(), *known.values, *known.aliases]:
        assert hasattr(found, name), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name


def test_unknown_modules_still_fail_to_import() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"mlserver\.rest\.nothing"):
        importlib.import_module("mlserver.rest.nothing")


def test_internals_explain_themselves_when_they_are_used() -> None:
    from mlserver.handlers import DataPlane  # type: ignore[attr-defined]
    from mlserver.rest.app import create_app  # type: ignore[import-not-found]

    expected = r"`mlserver\.rest\.app\.create_app` is internal to the Python server .*custom_handler"
    with pytest.raises(NotImplementedError, match=expected):
        create_app(None, None, None)
    with pytest.raises(NotImplementedError, match=r"mlserver\.handlers\.DataPlane"):

        class Sub(DataPlane):  # type: ignore[misc]
            """Never created."""

    with pytest.raises(NotImplementedError, match="REST or gRPC"):
        _ = DataPlane.infer
    assert not isinstance(5, DataPlane)


def test_internals_can_be_used_in_annotations() -> None:
    from mlserver.handlers import DataPlane  # type: ignore[attr-defined]
    from mlserver.parallel.worker import Worker  # type: ignore[import-not-found]

    def function(plane: Optional[DataPlane], workers: List[Worker]) -> "Worker":
        return workers[0]

    assert function(None, [1]) == 1
    assert (DataPlane | None) == Optional[DataPlane]
    assert (None | DataPlane) == Optional[DataPlane]
    assert "DataPlane" in repr(DataPlane)
    assert isinstance(DataPlane, Internal)
    assert DataPlane is importlib.import_module("mlserver.handlers").DataPlane


def test_aliases_are_the_real_things() -> None:
    from mlserver.codecs.json import JSONEncoderWithArray
    from mlserver.metrics.context import SELDON_MODEL_NAME_LABEL, SELDON_MODEL_VERSION_LABEL
    from mlserver.rest.responses import ServerSentEvent
    from mlserver.types import InferenceErrorResponse
    from mlserver_huggingface.common import NumpyEncoder  # type: ignore[import-not-found]

    assert NumpyEncoder is JSONEncoderWithArray
    assert (SELDON_MODEL_NAME_LABEL, SELDON_MODEL_VERSION_LABEL) == ("model_name", "model_version")
    assert ServerSentEvent(InferenceErrorResponse(error="é")).encode() == 'data: {"error":"é"}\n\n'.encode()
    assert importlib.import_module("mlserver_sklearn.version").__version__
    assert pickle.loads(pickle.dumps(importlib.import_module("mlserver.cloudevents").CloudEventsTypes.Request))


def test_finder_is_installed_once() -> None:
    from mlserver import _legacy

    _legacy.install()
    assert sum(type(finder).__name__ == "_Finder" for finder in sys.meta_path) == 1
