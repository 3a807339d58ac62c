"""Requests and responses of the V2 protocol."""

import json
import math
import struct
import uuid
from typing import Any, Dict, List, Optional, Tuple, Type, Union

from ..constants.constants import GRPC_CONTENT_DATATYPE_MAPPINGS
from ..errors import InferenceError, InvalidInput
from ..utils.numpy_codec import from_np_dtype, to_np_dtype

__all__ = [
    "InferInput",
    "InferOutput",
    "InferRequest",
    "InferResponse",
    "RequestedOutput",
    "deserialize_bytes_tensor",
    "get_content",
    "serialize_byte_tensor",
    "to_grpc_parameters",
    "to_http_parameters",
]

_BINARY_SIZE = "binary_data_size"
_LENGTH = struct.Struct("<I")


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """Returns an array of no dimensions that holds the elements as bytes, each after its length.

    An empty array gives an empty array.
    """
    import numpy as np

    if input_tensor.size == 0:
        return np.empty([0], dtype=np.object_)
    if input_tensor.dtype.kind not in "OSU":
        raise InferenceError("cannot serialize bytes tensor: invalid datatype")
    parts: List[bytes] = []
    for element in input_tensor.ravel().tolist():
        content = element if isinstance(element, bytes) else str(element).encode("utf-8")
        parts.append(_LENGTH.pack(len(content)))
        parts.append(content)
    return np.asarray(b"".join(parts), dtype=np.object_)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Any:
    """Returns the elements of a serialized tensor as an array of one dimension."""
    import numpy as np

    return np.array(_split(encoded_tensor), dtype=np.object_)


def _split(encoded: bytes) -> List[bytes]:
    elements: List[bytes] = []
    position = 0
    while position < len(encoded):
        content = position + _LENGTH.size
        if content > len(encoded):
            raise InvalidInput(f"the length of BYTES element {len(elements)} is cut off at byte {len(encoded)}")
        end = content + _LENGTH.unpack_from(encoded, position)[0]
        if end > len(encoded):
            raise InvalidInput(
                f"BYTES element {len(elements)} has {end - content} bytes, of which {len(encoded) - content} are left"
            )
        elements.append(bytes(encoded[content:end]))
        position = end
    return elements


def get_content(datatype: str, data: Any) -> Any:
    """Returns the field of `InferTensorContents` that has the elements of a datatype."""
    try:
        field = GRPC_CONTENT_DATATYPE_MAPPINGS[datatype]
    except KeyError:
        raise InvalidInput("invalid content type") from None
    return list(getattr(data, field))


def to_http_parameters(parameters: Any) -> Dict[str, Any]:
    """Returns parameters as plain values, from plain values or gRPC's messages."""
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    which = getattr(value, "WhichOneof", None)
    if which is None:
        return value
    field = which("parameter_choice")
    return None if field is None else getattr(value, field)


def _message(name: str) -> Any:
    """Returns a class of gRPC's messages, which need a package of their own."""
    from .grpc import grpc_predict_v2_pb2

    return getattr(grpc_predict_v2_pb2, name)


def to_grpc_parameters(parameters: Any) -> Dict[str, Any]:
    """Returns parameters as gRPC's messages."""
    InferParameter = _message("InferParameter")  # noqa: N806

    converted = {}
    for name, value in parameters.items():
        if isinstance(value, InferParameter):
            converted[name] = value
        elif isinstance(value, bool):
            converted[name] = InferParameter(bool_param=value)
        elif isinstance(value, int):
            converted[name] = InferParameter(int64_param=value)
        elif isinstance(value, str):
            converted[name] = InferParameter(string_param=value)
        else:
            raise InvalidInput(f"to_grpc: invalid parameter value: {value}")
    return converted


class RequestedOutput:
    """An output that a client asks for."""

    def __init__(self, name: str, parameters: Optional[Dict[str, Any]] = None) -> None:
        self._name = name
        self._parameters = parameters

    @property
    def name(self) -> str:
        """The output's name."""
        return self._name

    @property
    def parameters(self) -> Optional[Dict[str, Any]]:
        """The parameters, if any."""
        return self._parameters

    @parameters.setter
    def parameters(self, params: Optional[Dict[str, Any]]) -> None:
        self._parameters = params

    @property
    def binary_data(self) -> Optional[bool]:
        """Whether the output is to be raw data, or `None` if the client does not say."""
        return self._parameters.get("binary_data") if self._parameters else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestedOutput):
            return False
        return self._name == other._name and self._parameters == other._parameters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RequestedOutput(name={self._name}, parameters={self._parameters})"

    __str__ = __repr__


class _Tensor:
    """What inputs and outputs have in common."""

    #: The end of the error about an unknown datatype.
    _invalid_datatype = "invalid datatype in the input"
    #: The error about data that is not what datatype and shape declare: that of a model, unless it is an input.
    _unreadable: Type[Exception] = InferenceError

    def __init__(self, name: str, shape: List[int], datatype: str, data: Any = None, parameters: Any = None) -> None:
        self._name = name
        self._shape = shape
        self._datatype = datatype.upper()
        self._parameters = parameters
        if type(data).__name__ == "InferTensorContents":  # of gRPC, which need not be installed
            data = get_content(self._datatype, data)
        self._data = data
        self._raw_data: Optional[bytes] = None

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self._name

    @property
    def datatype(self) -> str:
        """The protocol's name of the datatype."""
        return self._datatype

    @property
    def data(self) -> Any:
        """The elements, or `None` if the tensor has raw data."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data

    @property
    def shape(self) -> List[int]:
        """The size of each dimension."""
        return self._shape

    @shape.setter
    def shape(self, shape: List[int]) -> None:
        self._shape = shape

    @property
    def parameters(self) -> Any:
        """The parameters, if any."""
        return self._parameters

    @parameters.setter
    def parameters(self, params: Any) -> None:
        self._parameters = params

    def as_numpy(self) -> Any:
        """Returns the elements as an array of the tensor's shape and datatype."""
        import numpy as np

        dtype = to_np_dtype(self._datatype)
        if dtype is None:
            raise InvalidInput(self._invalid_datatype)
        if self._raw_data is None and self.data is None:
            raise InvalidInput(f"tensor {self._name!r} has no data")
        try:
            if self._raw_data is None:
                elements = np.array(self.data, dtype=dtype)
            elif self._datatype == "BYTES":
                elements = deserialize_bytes_tensor(self._raw_data)
            else:
                elements = np.frombuffer(self._raw_data, dtype=dtype)
            return elements.reshape(self._shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._unreadable(
                f"the data of tensor {self._name!r} is not {self._datatype} of shape {self._shape!s:.80}: {error}"
            ) from error

    def _set_data_from_numpy(self, tensor: Any, binary_data: bool) -> None:
        import numpy as np

        if not isinstance(tensor, np.ndarray):
            raise InferenceError("input_tensor must be a numpy array")
        datatype = from_np_dtype(tensor.dtype)
        if datatype != self._datatype:
            raise InferenceError(f"got unexpected datatype {datatype} from numpy array, expected {self._datatype}")
        if list(tensor.shape) != list(self._shape):
            raise InferenceError(f"got unexpected numpy array shape {list(tensor.shape)}, expected {list(self._shape)}")
        if tensor.dtype.kind == "M":
            tensor = tensor.astype(np.object_)
        if not tensor.dtype.isnative:
            tensor = tensor.astype(tensor.dtype.newbyteorder("="))
        if binary_data:
            self._data = None
            if datatype == "BYTES":
                self._raw_data = serialize_byte_tensor(tensor).item() if tensor.size else b""
            else:
                self._raw_data = tensor.tobytes()
            self._parameters = {} if self._parameters is None else self._parameters
            _set_parameter(self._parameters, _BINARY_SIZE, len(self._raw_data))
            return
        if self._parameters:
            self._parameters.pop(_BINARY_SIZE, None)
        elements = tensor.ravel().tolist()
        self._data = [_as_text(element) for element in elements] if datatype == "BYTES" else elements
        self._raw_data = None

    def _as_rest(self, data: Any) -> Dict[str, Any]:
        """Returns the tensor's JSON, with `data` unless it is `None`."""
        tensor: Dict[str, Any] = {"name": self._name, "shape": self._shape, "datatype": self._datatype}
        if self._parameters:
            tensor["parameters"] = to_http_parameters(self._parameters)
        if data is not None:
            tensor["data"] = data
        return tensor

    def _has_array(self) -> bool:
        return hasattr(self.data, "__array__")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Tensor) or type(other) is not type(self):
            return False
        return (
            self._name == other._name
            and list(self._shape) == list(other._shape)
            and self._datatype == other._datatype
            and self._parameters == other._parameters
            and _same_data(self.data, other.data)
            and self._raw_data == other._raw_data
        )

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> Dict[str, Any]:
        """Returns the tensor as a dictionary."""
        return {
            "name": self._name,
            "shape": self._shape,
            "datatype": self._datatype,
            "data": self.data,
            "parameters": to_http_parameters(self._parameters) if self._parameters is not None else None,
        }

    def __repr__(self) -> str:
        return (
            f'"name": "{self._name}","shape": {self._shape},"datatype": "{self._datatype}",'
            f'"data": {self.data},"parameters": {self._parameters}'
        )

    __str__ = __repr__


def _same_data(one: Any, other: Any) -> bool:
    same = one == other
    if isinstance(same, bool):
        return same
    import numpy as np

    return bool(np.array_equal(one, other))


def _set_parameter(parameters: Any, name: str, value: int) -> None:
    if hasattr(parameters, "GetEntryClass"):  # items of a map of protobuf messages cannot be assigned
        parameters[name].int64_param = value
    else:
        parameters[name] = value


def _as_text(element: Any) -> str:
    if not isinstance(element, bytes):
        return str(element)
    try:
        return element.decode("utf-8")
    except UnicodeDecodeError:
        raise InferenceError(
            f'Failed to encode "{element!r}" using UTF-8. Please use binary_data=True, if you want to pass a byte array.'
        ) from None


class InferInput(_Tensor):
    """An input of a request."""

    _invalid_datatype = "invalid datatype None in the input"
    _unreadable = InvalidInput

    def __init__(self, name: str, shape: List[int], datatype: str, data: Any = None, parameters: Any = None) -> None:
        super().__init__(name, shape, datatype, data, parameters)

    def as_string(self) -> Any:
        """Returns the elements of a BYTES tensor as strings, in a list of one dimension."""
        if self._datatype != "BYTES":
            raise InvalidInput(f"invalid datatype {self._datatype} in the input")
        data = self.data if self._raw_data is None else _split(self._raw_data)
        if data is None:
            raise InvalidInput(f"tensor {self._name!r} has no data")
        return _strings(data)

    def set_data_from_numpy(self, input_tensor: Any, binary_data: bool = True) -> None:
        """Sets the elements from an array of the input's shape and datatype."""
        self._set_data_from_numpy(input_tensor, binary_data)


def _strings(elements: Any) -> List[str]:
    strings: List[str] = []
    for element in elements:
        if isinstance(element, bytes):
            strings.append(element.decode("utf-8"))
        elif isinstance(element, str):
            strings.append(element)
        else:
            strings.extend(_strings(element))
    return strings


class InferOutput(_Tensor):
    """An output of a response."""

    def __init__(self, name: str, shape: List[int], datatype: str, data: Any = None, parameters: Any = None) -> None:
        super().__init__(name, shape, datatype, data, parameters)

    def set_data_from_numpy(self, output_tensor: Any, binary_data: bool = True) -> None:
        """Sets the elements from an array of the output's shape and datatype."""
        self._set_data_from_numpy(output_tensor, binary_data)


class InferRequest:
    """A request of the V2 protocol."""

    def __init__(
        self,
        model_name: str,
        infer_inputs: List[InferInput],
        request_id: Optional[str] = None,
        raw_inputs: Optional[List[bytes]] = None,
        from_grpc: Optional[bool] = False,
        parameters: Any = None,
        request_outputs: Optional[List[RequestedOutput]] = None,
        model_version: Optional[str] = None,
    ) -> None:
        self.id = request_id
        self.model_name = model_name
        self.inputs = infer_inputs
        self.parameters = parameters
        # An instance attribute: the class has a method of the same name.
        self.from_grpc = from_grpc  # type: ignore[assignment,method-assign]
        self._use_raw_outputs = bool(raw_inputs)
        self.request_outputs = request_outputs
        self.model_version = model_version
        _set_raw(infer_inputs, raw_inputs, "input")

    @property
    def use_binary_outputs(self) -> bool:
        """Whether outputs are to be raw data unless the client says so for each."""
        if vars(self)["from_grpc"]:
            return self._use_raw_outputs
        return bool(self.parameters and _plain(self.parameters.get("binary_data_output", False)))

    @classmethod
    def from_grpc(cls, request: Any) -> "InferRequest":
        """Converts a `ModelInferRequest`."""
        inputs = [
            InferInput(
                tensor.name,
                list(tensor.shape),
                tensor.datatype,
                get_content(tensor.datatype, tensor.contents) if not request.raw_input_contents else [],
                to_http_parameters(tensor.parameters) or None,
            )
            for tensor in request.inputs
        ]
        outputs = [RequestedOutput(out.name, to_http_parameters(out.parameters) or None) for out in request.outputs]
        return cls(
            model_name=request.model_name,
            infer_inputs=inputs,
            request_id=request.id,
            raw_inputs=list(request.raw_input_contents),
            from_grpc=True,
            parameters=request.parameters,
            request_outputs=outputs or None,
            model_version=request.model_version,
        )

    @classmethod
    def from_bytes(cls, req_bytes: bytes, json_length: int, model_name: str) -> "InferRequest":
        """Reads a request with binary tensors: `json_length` bytes of JSON, followed by the raw data of the inputs."""
        request = _parse(req_bytes[:json_length] if json_length >= 0 else b"")
        inputs: List[InferInput] = []
        position = json_length
        for tensor in _field(request, "inputs", list):
            arguments, raw, position = _read_tensor(tensor, req_bytes, position, "input", model_name)
            item = InferInput(*arguments)
            if raw is None and item.datatype == "FP16":
                raise InvalidInput(
                    "Receiving FP16 data via JSON is not supported. Please use the binary data format for input "
                    f"{item.name}"
                )
            _set_elements(item, raw)
            inputs.append(item)
        outputs = request.get("outputs")
        return cls(
            model_name=model_name,
            infer_inputs=inputs,
            request_id=request.get("id"),
            parameters=request.get("parameters"),
            request_outputs=None if not outputs else [_requested(output) for output in outputs],
            model_version=request.get("model_version"),
        )

    @classmethod
    def from_inference_request(cls, request: Any, model_name: str) -> "InferRequest":
        """Converts the parsed JSON of a request: an object with the fields of the protocol as attributes."""
        inputs = []
        for tensor in request.inputs:
            if str(tensor.datatype).upper() == "FP16":
                raise InvalidInput(
                    "Receiving FP16 data via JSON is not supported. Please use the binary data format for input "
                    f"{tensor.name}"
                )
            parameters = getattr(tensor, "parameters", None)
            inputs.append(InferInput(tensor.name, tensor.shape, tensor.datatype, tensor.data, parameters))
        outputs = getattr(request, "outputs", None)
        return cls(
            model_name=model_name,
            infer_inputs=inputs,
            request_id=getattr(request, "id", None),
            parameters=getattr(request, "parameters", None),
            request_outputs=[RequestedOutput(out.name, out.parameters) for out in outputs] if outputs else None,
            model_version=getattr(request, "model_version", None),
        )

    def to_rest(self) -> Tuple[Union[bytes, Dict[str, Any]], Optional[int]]:
        """Returns the request's JSON and `None`, or, with raw data, the bytes to send and the length of the JSON in them."""
        inputs, raw = [], []
        for tensor in self.inputs:
            if tensor._raw_data is None:
                if tensor._datatype == "FP16":
                    raise InvalidInput(
                        "Sending FP16 data via JSON is not supported. Please use the binary data format for input "
                        f"{tensor.name}"
                    )
                if tensor.data is None:
                    raise InvalidInput(
                        f"'data' field is missing for input '{tensor.name}' for model '{self.model_name}'"
                    )
                if tensor._has_array():
                    tensor.set_data_from_numpy(tensor.data, binary_data=False)
                inputs.append(tensor._as_rest(tensor.data))
            else:
                if tensor.data:
                    raise InvalidInput(
                        f"Both 'data' and 'raw_data' fields are set for input '{tensor.name}' for model '{self.model_name}'"
                    )
                inputs.append(tensor._as_rest(None))
                raw.append(tensor._raw_data)
        body: Dict[str, Any] = {"id": self.id or str(uuid.uuid4()), "model_name": self.model_name, "inputs": inputs}
        if self.request_outputs:
            body["outputs"] = [
                {"name": output.name, "parameters": output.parameters} if output.parameters else {"name": output.name}
                for output in self.request_outputs
            ]
        if self.parameters:
            body["parameters"] = to_http_parameters(self.parameters)
        return _join(body, raw)

    def to_grpc(self) -> Any:
        """Converts to a `ModelInferRequest`."""
        raw: List[bytes] = []
        inputs = [
            _grpc_tensor(tensor, raw, "invalid input datatype", "input data is not a List") for tensor in self.inputs
        ]
        return _message("ModelInferRequest")(
            id=self.id,
            model_name=self.model_name,
            model_version=self.model_version,
            inputs=inputs,
            raw_input_contents=raw,
            outputs=[
                {"name": output.name, "parameters": to_grpc_parameters(output.parameters or {})}
                for output in self.request_outputs or ()
            ],
            parameters=to_grpc_parameters(self.parameters or {}),
        )

    def as_dataframe(self) -> Any:
        """Returns the inputs as a pandas data frame, one column each."""
        import pandas as pd

        columns = {}
        for tensor in self.inputs:
            if tensor.datatype == "BYTES":
                columns[tensor.name] = pd.Series(tensor.as_string(), dtype=object)
            elif tensor._raw_data is None:
                columns[tensor.name] = pd.Series(tensor.data)
            else:
                columns[tensor.name] = pd.Series(tensor.as_numpy().ravel())
        return pd.DataFrame(columns)

    def get_input_by_name(self, name: str) -> Optional[InferInput]:
        """Returns the input, or `None` if no input has the name."""
        return next((tensor for tensor in self.inputs if tensor.name == name), None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InferRequest):
            return False
        return (
            self.model_name == other.model_name
            and self.id == other.id
            and self.from_grpc == other.from_grpc
            and self.parameters == other.parameters
            and self.inputs == other.inputs
            and self.request_outputs == other.request_outputs
        )

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> Dict[str, Any]:
        """Returns the request as a dictionary."""
        return {
            "id": self.id,
            "model_name": self.model_name,
            "inputs": [tensor.to_dict() for tensor in self.inputs],
            "parameters": to_http_parameters(self.parameters) if self.parameters is not None else None,
            "from_grpc": self.from_grpc,
        }

    def __repr__(self) -> str:
        return (
            f'"id": "{self.id}","model_name": "{self.model_name}","inputs": {self.inputs},'
            f'"parameters": {self.parameters},"from_grpc": {self.from_grpc}'
        )

    __str__ = __repr__


class InferResponse:
    """A response of the V2 protocol."""

    def __init__(
        self,
        response_id: str,
        model_name: str,
        infer_outputs: List[InferOutput],
        model_version: Optional[str] = None,
        raw_outputs: Optional[List[bytes]] = None,
        from_grpc: Optional[bool] = False,
        parameters: Any = None,
        use_binary_outputs: Optional[bool] = False,
        requested_outputs: Optional[List[RequestedOutput]] = None,
    ) -> None:
        self.id = response_id
        self.model_name = model_name
        self.model_version = model_version
        self.outputs = infer_outputs
        self.parameters = parameters
        # An instance attribute: the class has a method of the same name.
        self.from_grpc = from_grpc  # type: ignore[assignment,method-assign]
        self._requested_outputs = requested_outputs
        self._use_binary_outputs = use_binary_outputs
        _set_raw(infer_outputs, raw_outputs, "output")

    @classmethod
    def from_grpc(cls, response: Any) -> "InferResponse":
        """Converts a `ModelInferResponse`."""
        outputs = [
            InferOutput(
                tensor.name,
                list(tensor.shape),
                tensor.datatype,
                get_content(tensor.datatype, tensor.contents) if not response.raw_output_contents else [],
                tensor.parameters,
            )
            for tensor in response.outputs
        ]
        return cls(
            response_id=response.id,
            model_name=response.model_name,
            infer_outputs=outputs,
            model_version=response.model_version,
            raw_outputs=list(response.raw_output_contents),
            from_grpc=True,
            parameters=response.parameters,
        )

    @classmethod
    def from_rest(cls, response: Dict[str, Any]) -> "InferResponse":
        """Converts the parsed JSON of a response."""
        model_name = response.get("model_name")
        outputs = []
        for tensor in _field(response, "outputs", list):
            (name, shape, datatype, data, parameters), _, _ = _read_tensor(tensor, b"", 0, "output", model_name)
            outputs.append(InferOutput(name, shape, datatype, data, parameters))
        return cls._from_json(response, model_name, outputs)

    @classmethod
    def from_bytes(cls, res_bytes: bytes, json_length: int) -> "InferResponse":
        """Reads a response with binary tensors: `json_length` bytes of JSON, followed by the raw data of the outputs."""
        response = _parse(res_bytes[:json_length] if json_length >= 0 else b"")
        model_name = response.get("model_name")
        outputs = []
        position = json_length
        for tensor in _field(response, "outputs", list):
            arguments, raw, position = _read_tensor(tensor, res_bytes, position, "output", model_name)
            item = InferOutput(*arguments)
            _set_elements(item, raw)
            outputs.append(item)
        return cls._from_json(response, model_name, outputs)

    @classmethod
    def _from_json(cls, response: Dict[str, Any], model_name: Any, outputs: List[InferOutput]) -> "InferResponse":
        return cls(
            response_id=response.get("id"),  # type: ignore[arg-type]
            model_name=model_name,
            infer_outputs=outputs,
            model_version=response.get("model_version"),
            parameters=response.get("parameters"),
        )

    def to_rest(self) -> Tuple[Union[bytes, Dict[str, Any]], Optional[int]]:
        """Returns the response's JSON and `None`, or, with raw data, the bytes to send and the length of the JSON in them."""
        if self._requested_outputs:
            wanted = []
            for requested in self._requested_outputs:
                output = self.get_output_by_name(requested.name)
                if output is None:
                    raise InvalidInput(f"Unexpected inference output '{requested.name}' for model '{self.model_name}'")
                wanted.append((output, bool(requested.binary_data)))
        else:
            wanted = [(output, bool(self._use_binary_outputs)) for output in self.outputs]
        outputs, raw = [], []
        for output, binary in wanted:
            if output.data is None and output._raw_data is None:
                raise InvalidInput(f"'data' field is missing for output '{output.name}' for model '{self.model_name}'")
            if output.datatype == "FP16" and not binary:
                raise InvalidInput(
                    "Sending FP16 data via JSON is not supported. Please use the binary data format for output "
                    f"{output.name}"
                )
            if binary != (output._raw_data is not None) or not binary:
                array = output.data if output._has_array() and output._raw_data is None else output.as_numpy()
                output.set_data_from_numpy(array, binary_data=binary)
            outputs.append(output._as_rest(None if binary else output.data))
            if output._raw_data is not None:
                raw.append(output._raw_data)
        body: Dict[str, Any] = {
            "id": self.id,
            "model_name": self.model_name,
            "model_version": self.model_version,
            "outputs": outputs,
        }
        if self.parameters:
            body["parameters"] = to_http_parameters(self.parameters)
        return _join(body, raw)

    def to_grpc(self) -> Any:
        """Converts to a `ModelInferResponse`. With raw data in one output, all have raw data."""
        all_raw = bool(self._use_binary_outputs) or _contains_fp16_datatype(self)
        all_raw = all_raw or any(tensor._raw_data is not None or tensor._has_array() for tensor in self.outputs)
        raw: List[bytes] = []
        outputs = []
        for tensor in self.outputs:
            if all_raw and tensor._raw_data is None and tensor.data is not None:
                array = tensor.data if tensor._has_array() else tensor.as_numpy()
                tensor.set_data_from_numpy(array, binary_data=True)
            outputs.append(_grpc_tensor(tensor, raw, "to_grpc: invalid output datatype", "output data is not a List"))
        return _message("ModelInferResponse")(
            id=self.id,
            model_name=self.model_name,
            model_version=self.model_version,
            outputs=outputs,
            raw_output_contents=raw,
            parameters=to_grpc_parameters(self.parameters or {}),
        )

    def get_output_by_name(self, name: str) -> Optional[InferOutput]:
        """Returns the output, or `None` if no output has the name."""
        return next((tensor for tensor in self.outputs if tensor.name == name), None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InferResponse):
            return False
        return (
            self.model_name == other.model_name
            and self.model_version == other.model_version
            and self.id == other.id
            and self.from_grpc == other.from_grpc
            and self.parameters == other.parameters
            and self.outputs == other.outputs
        )

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> Dict[str, Any]:
        """Returns the response as a dictionary."""
        return {
            "id": self.id,
            "model_name": self.model_name,
            "outputs": [tensor.to_dict() for tensor in self.outputs],
            "parameters": to_http_parameters(self.parameters) if self.parameters is not None else None,
            "from_grpc": self.from_grpc,
        }

    def __repr__(self) -> str:
        return (
            f'"id": "{self.id}","model_name": "{self.model_name}","outputs": {self.outputs},'
            f'"parameters": {self.parameters},"from_grpc": {self.from_grpc}'
        )

    __str__ = __repr__


def _contains_fp16_datatype(infer_response: InferResponse) -> bool:
    """Whether an output is of half precision, which only raw data can carry."""
    return any(output.datatype == "FP16" for output in infer_response.outputs)


def _set_raw(tensors: Any, raw: Optional[List[bytes]], what: str) -> None:
    if not raw:
        return
    if len(raw) != len(tensors):
        raise InvalidInput(f"there are {len(raw)} raw contents for {len(tensors)} {what}s (send one for each)")
    for tensor, content in zip(tensors, raw):
        tensor._raw_data = content


def _field(message: Dict[str, Any], name: str, kind: type) -> Any:
    value = message.get(name)
    if not isinstance(value, kind):
        problem = "is missing" if name not in message else f"is {value!r:.40}, not a {kind.__name__}"
        raise InvalidInput(f"'{name}' {problem}")
    return value


def _parse(text: bytes) -> Dict[str, Any]:
    try:
        message = json.loads(bytes(text).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"Unrecognized request format: {error}") from None
    if not isinstance(message, dict):
        raise InvalidInput(f"Unrecognized request format: expected an object, got {type(message).__name__}")
    return message


def _requested(output: Any) -> RequestedOutput:
    if not isinstance(output, dict):
        raise InvalidInput(f"an item of 'outputs' is {output!r:.40}, not an object")
    return RequestedOutput(_field(output, "name", str), output.get("parameters"))


def _read_tensor(
    tensor: Any, body: bytes, position: int, what: str, model_name: Any
) -> Tuple[Tuple[str, List[int], str, Any, Any], Optional[bytes], int]:
    """Returns the arguments of a tensor, its raw data, and the position behind that."""
    if not isinstance(tensor, dict):
        raise InvalidInput(f"an {what} of model '{model_name}' is {tensor!r:.40}, not an object")
    name = _field(tensor, "name", str)
    shape, datatype = _field(tensor, "shape", list), _field(tensor, "datatype", str)
    data, parameters = tensor.get("data"), tensor.get("parameters")
    size = parameters.get(_BINARY_SIZE) if isinstance(parameters, dict) else None
    if data is not None and (what == "input" or size is None or not body):
        return (name, shape, datatype, data, parameters), None, position
    if size is None and parameters and _BINARY_SIZE in parameters:
        raise InvalidInput(f"'binary_data_size' is not specified for {what} '{name}' for model '{model_name}'")
    if size is None:
        raise InvalidInput(f"'data' field is missing for {what} '{name}' for model '{model_name}'")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or position + size > len(body):
        raise InvalidInput(
            f"'binary_data_size' of {what} '{name}' is {size!r:.40}, but {max(len(body) - position, 0)} bytes are left"
        )
    raw = bytes(body[position : position + size])
    return (name, shape, datatype, None, parameters), raw, position + size


def _set_elements(tensor: Any, raw: Optional[bytes]) -> None:
    """Sets the elements from raw data. Bytes that are not text stay bytes."""
    if raw is None:
        return
    tensor._raw_data = raw
    array = tensor.as_numpy()
    try:
        tensor.set_data_from_numpy(array, binary_data=False)
    except InferenceError:
        tensor.data = array.ravel().tolist()
        tensor._raw_data = None


def _join(body: Dict[str, Any], raw: List[bytes]) -> Tuple[Union[bytes, Dict[str, Any]], Optional[int]]:
    if not raw:
        return body, None
    text = _json(body)
    return b"".join([text, *raw]), len(text)


def _json(body: Any) -> bytes:
    """Encodes JSON without spaces. Numbers that JSON does not have become null."""
    try:
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(body), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _grpc_tensor(tensor: Any, raw: List[bytes], invalid: str, no_list: str) -> Dict[str, Any]:
    """Returns the fields of a message, and appends the tensor's raw data, if any."""
    if tensor._raw_data is None and tensor._has_array():
        tensor.set_data_from_numpy(tensor.data, binary_data=True)
    message = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
    if tensor._raw_data is not None:
        raw.append(tensor._raw_data)
    else:
        if not isinstance(tensor.data, list):
            raise InvalidInput(no_list)
        field = GRPC_CONTENT_DATATYPE_MAPPINGS.get(tensor.datatype)
        if field is None:
            raise InvalidInput(invalid)
        elements = _flat(tensor.data)
        if tensor.datatype == "BYTES":
            elements = [element if isinstance(element, bytes) else str(element).encode() for element in elements]
        message["contents"] = {field: elements}
    message["parameters"] = to_grpc_parameters(tensor.parameters or {})
    return message


def _flat(elements: List[Any]) -> List[Any]:
    if not any(isinstance(element, list) for element in elements):
        return elements
    flat: List[Any] = []
    for element in elements:
        flat.extend(_flat(element) if isinstance(element, list) else [element])
    return flat
