"""Tensors and parameters of V2, between KServe's types and those of the worker."""

import sys
from typing import Any, Dict, List, Optional

from .._payload import tensor_output, wire_parameters
from .._tensor import FixedElements
from ..errors import MLServerError


def lazy_tensor(base: Any) -> Any:
    """Returns a class of inputs or outputs over tensors of the worker, which become lists only if `data` is read."""

    class LazyTensor(base):  # type: ignore[misc]
        _tensor: Any = None
        _value: Any = None

        def __init__(self, tensor: Any) -> None:
            parameters = wire_parameters(tensor.parameters)
            super().__init__(tensor.name, tensor.shape, tensor.datatype, None, parameters or None)
            self._tensor = tensor.data

        @property
        def _data(self) -> Any:
            if self._value is None and self._tensor is not None:
                self._value = self._tensor.root
            return self._value

        @_data.setter
        def _data(self, value: Any) -> None:
            self._value, self._tensor = value, None

        def as_numpy(self) -> Any:
            # A list that was read may have been changed.
            elements = None if self._tensor is None or self._value is not None else self._tensor.elements
            if isinstance(elements, FixedElements) and elements.datatype != "BF16":
                return elements.numpy().reshape(self._shape)
            return super().as_numpy()

    LazyTensor.__name__ = LazyTensor.__qualname__ = base.__name__
    return LazyTensor


def binary_request(base: Any) -> Any:
    """Returns a class of requests whose outputs may be raw: the server writes them as the client has asked for."""

    class InferRequest(base):  # type: ignore[misc]
        use_binary_outputs = True

    return InferRequest


def came_over_grpc(request: Any) -> bool:
    """Returns whether a request of the worker came over gRPC."""
    return bool(getattr(request, "_from_grpc", False))


def output_of(tensor: Any) -> Any:
    """Returns the output of the worker for KServe's output."""
    raw = getattr(tensor, "_raw_data", None)
    data = tensor.data
    if raw is not None and tensor.datatype == "BYTES":
        data = _split(raw)
    elif raw is not None:
        data = FixedElements(tensor.datatype, memoryview(raw).cast("B"))
    return tensor_output(tensor.name, tensor.datatype, list(tensor.shape), sent_parameters(tensor.parameters), data)


def _split(raw: Any) -> List[bytes]:
    """Returns the elements of raw bytes, each of which begins with its length in 4 bytes."""
    view = memoryview(raw).cast("B")
    elements = []
    offset = 0
    while offset < len(view):
        start = offset + 4
        offset = start + int.from_bytes(view[offset:start], "little")
        if offset > len(view):
            raise ValueError("an element of a BYTES tensor exceeds its data")
        elements.append(bytes(view[start:offset]))
    return elements


def requested_output(response: Any, name: str) -> Any:
    tensor = response.get_output_by_name(name)
    if tensor is None:
        raise MLServerError(f"Unexpected inference output '{name}' for model '{response.model_name}'", 400)
    return tensor


def http_parameters(parameters: Any) -> Dict[str, Any]:
    """Returns parameters with values of Python instead of those of gRPC."""
    found = {}
    for name, value in (parameters or {}).items():
        kind = value.WhichOneof("parameter_choice") if hasattr(value, "WhichOneof") else None
        found[name] = value if kind is None else getattr(value, kind)
    return found


def sent_parameters(parameters: Any) -> Optional[Dict[str, Any]]:
    """Returns the parameters of an output without the size of its raw bytes, which the server knows."""
    found = http_parameters(parameters)
    found.pop("binary_data_size", None)
    return found or None


def array_outputs(result: Any) -> List[Any]:
    """Returns the outputs for an array, a frame, or a list."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(result, pandas.DataFrame):
        return [_array_output(str(name), result[name].to_numpy()) for name in result.columns]
    if isinstance(result, list) and result and all(isinstance(item, str) for item in result):
        return [tensor_output("output-0", "BYTES", [len(result)], None, result)]
    if isinstance(result, (list, tuple)):
        import numpy

        result = numpy.array(result)
    if hasattr(result, "dtype") and hasattr(result, "shape") and hasattr(result, "tolist"):
        return [_array_output("output-0", result)]
    raise TypeError(
        f"expected an InferResponse, its dictionary, an array, a frame or a list, got {type(result).__name__}"
    )


def _array_output(name: str, array: Any) -> Any:
    from .._kserve.utils.numpy_codec import from_np_dtype

    datatype = from_np_dtype(array.dtype)
    if datatype is None:
        raise TypeError(f"an array of {array.dtype} has no datatype")
    return tensor_output(name, datatype, list(array.shape), None, array.tolist() if datatype == "BYTES" else array)
