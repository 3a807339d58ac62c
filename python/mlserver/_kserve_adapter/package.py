"""The modules of the `kserve` package that a class extends: the real one, or ours."""

import contextlib
import importlib
from typing import Any, Dict

from .._kserve_classes import MODEL_MODULES
from .tensors import binary_request, lazy_tensor


class Package:
    """The modules of the `kserve` package that a class extends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = self._module("context")
        self.metrics = self._module("metrics")
        self.model: Any = self._module("model")
        self.infer_type: Any = self._module("protocol.infer_type")
        self.lazy_input = lazy_tensor(self.infer_type.InferInput)
        self.request = binary_request(self.infer_type.InferRequest)

    def grpc_parameters(self, parameters: Dict[str, Any]) -> Any:
        """Returns the parameters of a request as KServe shows those that came over gRPC: as messages, if protobuf is installed.

        Values that the messages do not have, which the server has added, stay as they are.
        """
        found = dict(parameters)
        for name, value in parameters.items():
            with contextlib.suppress(Exception):
                found.update(self.infer_type.to_grpc_parameters({name: value}))
        return found

    def _module(self, name: str) -> Any:
        try:
            return importlib.import_module(f"{self.name}.{name}")
        except ImportError:  # older versions have fewer modules
            return None


packages: Dict[str, Package] = {}


def is_default(model: Any, name: str) -> bool:
    """Returns whether a method is that of KServe's base classes."""
    if name in getattr(model, "__dict__", {}):
        return False
    owner = next((base for base in type(model).__mro__ if name in base.__dict__), None)
    return owner is not None and owner.__module__ in MODEL_MODULES
