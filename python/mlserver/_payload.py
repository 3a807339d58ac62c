"""Requests made of received buffers, and responses turned into buffers to send, for whoever moves them (the worker).

Nothing is validated on the way in: the server has done so. A frame's reader calls `tensor_input` for each tensor and
`inference_request` once; a writer calls `wire_outputs` and gets everything that travels:

    elements = FixedElements("FP32", memoryview(received)[start:end])     # or BytesElements(buffer, offsets, text)
    tensor = tensor_input("x", "FP32", [1, 4], {"content_type": "np"}, elements)
    request = inference_request("id-1", {"headers": {...}}, [tensor], None)
    ...
    for output in wire_outputs(response):
        send(output.name, output.datatype, output.shape, output.parameters, output.elements.buffer)
"""

import operator
from typing import Any, Dict, List, NamedTuple, Optional

from ._tensor import Elements, TensorError, pack
from .types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)

_set = object.__setattr__


class WireTensor(NamedTuple):
    """A tensor in the parts that travel; `elements.buffer` (and `.offsets` for BYTES) are ready to be sent."""

    name: str
    datatype: str
    shape: List[int]
    parameters: Dict[str, Any]
    elements: Elements


def parameters(values: Optional[Dict[str, Any]]) -> Optional[Parameters]:
    """Returns parameters that hold `values`."""
    if values is None:
        return None
    made = Parameters.__new__(Parameters)
    attributes = made.__dict__
    attributes["content_type"] = attributes["headers"] = None
    attributes.update(values)
    _set(made, "_given", set(values))
    return made


def tensor_input(
    name: str, datatype: str, shape: List[int], values: Optional[Dict[str, Any]], elements: Elements
) -> RequestInput:
    """Returns the input of these parts, as they are."""
    made = RequestInput.__new__(RequestInput)
    attributes = made.__dict__
    attributes["name"] = name
    attributes["shape"] = shape
    attributes["datatype"] = datatype
    attributes["parameters"] = parameters(values)
    attributes["data"] = TensorData(elements)
    _set(made, "_given", {"name", "shape", "datatype", "data"} if values is None else set(attributes))
    return made


def tensor_output(
    name: str, datatype: str, shape: List[int], values: Optional[Dict[str, Any]], data: Any
) -> ResponseOutput:
    """Returns the output of these parts, as they are; `data` is elements or any other value."""
    made = ResponseOutput.__new__(ResponseOutput)
    attributes = made.__dict__
    attributes["name"] = name
    attributes["shape"] = shape
    attributes["datatype"] = datatype
    attributes["parameters"] = parameters(values)
    attributes["data"] = TensorData(data)
    _set(made, "_given", {"name", "shape", "datatype", "data"} if values is None else set(attributes))
    return made


def requested_output(name: str, values: Optional[Dict[str, Any]] = None) -> RequestOutput:
    """Returns the wish for an output."""
    made = RequestOutput.__new__(RequestOutput)
    attributes = made.__dict__
    attributes["name"] = name
    attributes["parameters"] = parameters(values)
    _set(made, "_given", {"name"} if values is None else {"name", "parameters"})
    return made


def inference_request(
    request_id: Optional[str],
    values: Optional[Dict[str, Any]],
    inputs: List[RequestInput],
    outputs: Optional[List[RequestOutput]] = None,
) -> InferenceRequest:
    """Returns the request of these parts, as they are."""
    made = InferenceRequest.__new__(InferenceRequest)
    attributes = made.__dict__
    attributes["id"] = request_id
    attributes["parameters"] = parameters(values)
    attributes["inputs"] = inputs
    attributes["outputs"] = outputs
    _set(made, "_given", {name for name, value in attributes.items() if value is not None})
    return made


def wire_parameters(value: Any) -> Dict[str, Any]:
    """Returns parameters as a dictionary, without those that are `None`."""
    if value is None:
        return {}
    values = value if isinstance(value, dict) else value.__dict__
    return {name: item for name, item in values.items() if item is not None}


def wire_outputs(response: InferenceResponse) -> List[WireTensor]:
    """Returns the outputs of a response, ready to be sent.

    Raises `TensorError`, which names the output whose data is no tensor of its datatype.
    """
    return [_wire_output(output) for output in response.outputs]


def _wire_output(output: Any) -> WireTensor:
    data, datatype = output.data, output.datatype
    datatype = getattr(datatype, "value", datatype)
    try:
        elements = pack(data.raw if isinstance(data, TensorData) else data, datatype)
        shape = list(map(operator.index, output.shape))
    except (TensorError, TypeError) as error:
        raise TensorError(f"output '{output.name}': {error}") from error
    return WireTensor(output.name, datatype, shape, wire_parameters(output.parameters), elements)
