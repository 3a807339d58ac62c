"""Builds requests from received buffers, and converts responses to buffers to send.

Received values are not validated, because the server has validated them. The reader of a frame calls `tensor_input` for each
tensor and `inference_request` once; the writer calls `wire_outputs`, which returns everything to send:

    elements = FixedElements("FP32", memoryview(received)[start:end])     # or BytesElements(buffer, offsets, text)
    tensor = tensor_input("x", "FP32", [1, 4], {"content_type": "np"}, elements)
    request = inference_request("id-1", {"headers": {...}}, [tensor], None)
    ...
    for output in wire_outputs(response):
        send(output.name, output.datatype, output.shape, output.parameters, output.packed.elements.buffer)
"""

import operator
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional

from ._model import set_fields
from ._tensor import PackedOutput, TensorError, is_plain, pack_output, plain_output, resolved_shape
from .types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)
from .types.dataplane import flat_data

_new = object.__new__
_set = object.__setattr__


class WireTensor(NamedTuple):
    """The fields of a tensor to send; `packed.elements.buffer` (and `.offsets` for BYTES) are sent as they are."""

    name: str
    datatype: str
    shape: List[int]
    #: `None` if the tensor has none.
    parameters: Optional[Dict[str, Any]]
    packed: PackedOutput

    @property
    def fits(self) -> bool:
        """Whether the data has as many elements as the shape."""
        elements = self.packed.elements
        return elements is not None and resolved_shape(self.shape, len(elements)) is not None


#: The names of attributes of `Parameters`, once they are needed.
_reserved: FrozenSet[str] = frozenset()


def _reserved_names() -> FrozenSet[str]:
    global _reserved
    _reserved = Parameters._reserved()
    return _reserved


def parameters(values: Optional[Dict[str, Any]]) -> Optional[Parameters]:
    """Returns parameters with `values`."""
    if values is None:
        return None
    instance = _new(Parameters)
    attributes = instance.__dict__
    attributes["content_type"] = attributes["headers"] = None
    if len(values) == 1 and "headers" in values:  # most requests
        attributes["headers"] = values["headers"]
    elif (_reserved or _reserved_names()).isdisjoint(values):
        attributes.update(values)
    else:
        instance._set_values(values)
    set_fields(instance, set(values))
    return instance


def tensor_input(
    name: str,
    datatype: str,
    shape: List[int],
    values: Optional[Dict[str, Any]],
    elements: Any,
    nested: bool = False,
    sent_shape: Optional[List[int]] = None,
    sent: Optional[bytes] = None,
) -> RequestInput:
    """Returns an input with these fields, without validation.

    `elements` is the parsed value if the data came as JSON. If `nested` is true, the client sent rows, and Python sees rows.
    `sent_shape` is the client's shape, if it has negative dimensions, and `sent` its JSON, if the elements lose its form.
    """
    data = TensorData(elements, shape if nested else None, sent) if nested or sent is not None else flat_data(elements)
    return plain_input(name, datatype, shape if sent_shape is None else sent_shape, values, data)


def plain_input(
    name: str, datatype: str, shape: List[int], values: Optional[Dict[str, Any]], data: TensorData
) -> RequestInput:
    """Returns an input with these fields, without validation."""
    instance = _new(RequestInput)
    attributes = instance.__dict__
    attributes["name"] = name
    attributes["shape"] = shape
    attributes["datatype"] = datatype
    attributes["parameters"] = None if values is None else parameters(values)
    attributes["data"] = data
    set_fields(instance, {"name", "shape", "datatype", "data"} if values is None else set(attributes))
    return instance


def tensor_output(
    name: str, datatype: str, shape: List[int], values: Optional[Dict[str, Any]], data: Any
) -> ResponseOutput:
    """Returns an output with these fields, without validation; `data` is elements or any other value."""
    instance = _new(ResponseOutput)
    attributes = instance.__dict__
    attributes["name"] = name
    attributes["shape"] = shape
    attributes["datatype"] = datatype
    attributes["parameters"] = parameters(values)
    attributes["data"] = TensorData(data) if isinstance(data, TensorData) else flat_data(data)
    set_fields(instance, {"name", "shape", "datatype", "data"} if values is None else set(attributes))
    return instance


def requested_output(name: str, values: Optional[Dict[str, Any]] = None) -> RequestOutput:
    """Returns a requested output."""
    instance = RequestOutput.__new__(RequestOutput)
    attributes = instance.__dict__
    attributes["name"] = name
    attributes["parameters"] = parameters(values)
    _set(instance, "_fields_set", {"name"} if values is None else {"name", "parameters"})
    return instance


def inference_request(
    request_id: Optional[str],
    values: Optional[Dict[str, Any]],
    inputs: List[RequestInput],
    outputs: Optional[List[RequestOutput]] = None,
    from_grpc: bool = False,
) -> InferenceRequest:
    """Returns a request with these fields, without validation."""
    instance = _new(InferenceRequest)
    attributes = instance.__dict__
    attributes["id"] = request_id
    attributes["parameters"] = parameters(values)
    attributes["inputs"] = inputs
    attributes["outputs"] = outputs
    fields = {"inputs"}
    if request_id is not None:
        fields.add("id")
    if values is not None:
        fields.add("parameters")
    if outputs is not None:
        fields.add("outputs")
    set_fields(instance, fields)
    if from_grpc:
        _set(instance, "_from_grpc", True)
    return instance


def inference_response(
    model_name: str, model_version: Optional[str], outputs: List[ResponseOutput]
) -> InferenceResponse:
    """Returns a response with these fields, without validation."""
    instance = InferenceResponse.__new__(InferenceResponse)
    attributes = instance.__dict__
    attributes["model_name"] = model_name
    attributes["model_version"] = model_version
    attributes["id"] = attributes["parameters"] = None
    attributes["outputs"] = outputs
    _set(instance, "_fields_set", {"model_name", "model_version", "outputs"})
    return instance


def wire_parameters(value: Any) -> Dict[str, Any]:
    """Returns parameters as a dictionary, without those that are `None`."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if item is not None}
    found = {name: item for name, item in value.__dict__.items() if item is not None}
    if "_shadowing" in found:
        found.update((name, item) for name, item in found.pop("_shadowing").items() if item is not None)
    return found


def wire_outputs(response: InferenceResponse) -> List[WireTensor]:
    """Returns the outputs of a response, ready to send.

    Raises `TensorError` with the output's name if its data is not a valid tensor of its datatype.
    """
    return [_wire_output(output) for output in response.outputs]


def _wire_output(output: Any) -> WireTensor:
    data, datatype = output.data, output.datatype
    if type(datatype) is not str:
        datatype = getattr(datatype, "value", datatype)
    try:
        shape = list(map(operator.index, output.shape))
        packed = _pack(data, datatype, shape)
    except (TensorError, TypeError) as error:
        raise TensorError(f"output '{output.name}': {error}") from error
    parameters = None if output.parameters is None else wire_parameters(output.parameters)
    # Half the time of `WireTensor(…)`.
    return tuple.__new__(WireTensor, (output.name, datatype, shape, parameters, packed))


def _pack(data: Any, datatype: str, shape: List[int]) -> PackedOutput:
    if not isinstance(data, TensorData):
        return pack_output(data, datatype, shape)
    if data._shape is None and data._sent is None:
        elements = data._data
        if is_plain(elements, datatype, shape):
            return plain_output(elements)
        return pack_output(elements, datatype, shape)
    if data.nested and data.shape == shape:
        # The rows of an input are rows of the output, too.
        packed = pack_output(data.raw, datatype, shape)
        return packed if packed.sent else packed._replace(nested=True)
    return pack_output(data.root if data.nested or data.sent is not None else data.raw, datatype, shape)
