"""Converters between gRPC messages and payload types.

Values are not validated. Raw contents are converted to buffers and back without intermediate lists.
"""

from typing import Any, Dict, List, Mapping, Optional, Union

from .. import raw
from .._payload import parameters as _parameters
from .._tensor import BytesElements, FixedElements, TensorError, pack
from ..types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataServerResponse,
    MetadataTensor,
    Parameters,
    RepositoryIndexRequest,
    RepositoryIndexResponse,
    RepositoryIndexResponseItem,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)
from . import dataplane_pb2, model_repository_pb2

__all__ = [
    "InferInputTensorConverter",
    "InferOutputTensorConverter",
    "InferRequestedOutputTensorConverter",
    "InferTensorContentsConverter",
    "ModelInferRequestConverter",
    "ModelInferResponseConverter",
    "ModelMetadataResponseConverter",
    "ParametersConverter",
    "RepositoryIndexRequestConverter",
    "RepositoryIndexResponseConverter",
    "RepositoryIndexResponseItemConverter",
    "ServerMetadataResponseConverter",
    "TensorMetadataConverter",
]

# The generated modules create their classes at import, so type checkers do not see them.
_pb: Any = dataplane_pb2
_repository_pb: Any = model_repository_pb2

_CONTENTS_FIELDS: Dict[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class ServerMetadataResponseConverter:
    """Metadata of a server."""

    @classmethod
    def to_types(cls, pb_object: Any) -> MetadataServerResponse:
        """Returns the message as a payload type."""
        return MetadataServerResponse.model_construct(
            name=pb_object.name, version=pb_object.version, extensions=list(pb_object.extensions)
        )

    @classmethod
    def from_types(cls, type_object: MetadataServerResponse) -> Any:
        """Returns the payload type as a message."""
        return _pb.ServerMetadataResponse(
            name=type_object.name, version=type_object.version, extensions=type_object.extensions
        )


class ModelMetadataResponseConverter:
    """Metadata of a model."""

    @classmethod
    def to_types(cls, pb_object: Any) -> MetadataModelResponse:
        """Returns the message as a payload type."""
        return MetadataModelResponse.model_construct(
            name=pb_object.name,
            versions=list(pb_object.versions),
            platform=pb_object.platform,
            inputs=[TensorMetadataConverter.to_types(tensor) for tensor in pb_object.inputs] or None,
            outputs=[TensorMetadataConverter.to_types(tensor) for tensor in pb_object.outputs] or None,
            parameters=ParametersConverter.to_types(pb_object.parameters),
        )

    @classmethod
    def from_types(cls, type_object: MetadataModelResponse) -> Any:
        """Returns the payload type as a message."""
        return _pb.ModelMetadataResponse(
            name=type_object.name,
            versions=type_object.versions or (),
            platform=type_object.platform,
            inputs=[TensorMetadataConverter.from_types(tensor) for tensor in type_object.inputs or ()],
            outputs=[TensorMetadataConverter.from_types(tensor) for tensor in type_object.outputs or ()],
            parameters=ParametersConverter.from_types(type_object.parameters),
        )


class TensorMetadataConverter:
    """Metadata of a tensor."""

    @classmethod
    def to_types(cls, pb_object: Any) -> MetadataTensor:
        """Returns the message as a payload type."""
        return MetadataTensor.model_construct(
            name=pb_object.name,
            datatype=pb_object.datatype,
            shape=list(pb_object.shape),
            parameters=ParametersConverter.to_types(pb_object.parameters),
        )

    @classmethod
    def from_types(cls, type_object: MetadataTensor) -> Any:
        """Returns the payload type as a message."""
        return _pb.ModelMetadataResponse.TensorMetadata(
            name=type_object.name,
            datatype=_name(type_object.datatype),
            shape=type_object.shape,
            parameters=ParametersConverter.from_types(type_object.parameters),
        )


class ModelInferRequestConverter:
    """Requests."""

    @classmethod
    def to_types(cls, pb_object: Any) -> InferenceRequest:
        """Returns the message as a payload type."""
        contents = list(pb_object.raw_input_contents)
        return InferenceRequest.model_construct(
            id=pb_object.id,
            parameters=ParametersConverter.to_types(pb_object.parameters),
            inputs=_with_raw([InferInputTensorConverter.to_types(tensor) for tensor in pb_object.inputs], contents),
            outputs=[InferRequestedOutputTensorConverter.to_types(output) for output in pb_object.outputs] or None,
        )

    @classmethod
    def from_types(
        cls, type_object: InferenceRequest, model_name: str, model_version: str = "", use_raw: bool = False
    ) -> Any:
        """Returns the payload type as a message. If `use_raw` is true, the data is in raw contents."""
        return _pb.ModelInferRequest(
            model_name=model_name,
            model_version=model_version,
            id=type_object.id or "",
            parameters=ParametersConverter.from_types(type_object.parameters),
            inputs=[InferInputTensorConverter.from_types(tensor, use_raw) for tensor in type_object.inputs],
            outputs=[InferRequestedOutputTensorConverter.from_types(output) for output in type_object.outputs or ()],
            raw_input_contents=[raw.pack(tensor) for tensor in type_object.inputs] if use_raw else (),
        )


class InferInputTensorConverter:
    """Inputs."""

    @classmethod
    def to_types(cls, pb_object: Any) -> RequestInput:
        """Returns the message as a payload type."""
        return RequestInput.model_construct(
            name=pb_object.name,
            shape=list(pb_object.shape),
            datatype=pb_object.datatype,
            parameters=ParametersConverter.to_types(pb_object.parameters),
            data=InferTensorContentsConverter.to_types(pb_object.contents),
        )

    @classmethod
    def from_types(cls, type_object: RequestInput, use_raw: bool = False) -> Any:
        """Returns the payload type as a message, without its data if `use_raw` is true."""
        return _pb.ModelInferRequest.InferInputTensor(**_tensor_fields(type_object, use_raw))


class InferRequestedOutputTensorConverter:
    """Requested outputs."""

    @classmethod
    def to_types(cls, pb_object: Any) -> RequestOutput:
        """Returns the message as a payload type."""
        return RequestOutput.model_construct(
            name=pb_object.name, parameters=ParametersConverter.to_types(pb_object.parameters)
        )

    @classmethod
    def from_types(cls, type_object: RequestOutput) -> Any:
        """Returns the payload type as a message."""
        return _pb.ModelInferRequest.InferRequestedOutputTensor(
            name=type_object.name, parameters=ParametersConverter.from_types(type_object.parameters)
        )


class ModelInferResponseConverter:
    """Responses."""

    @classmethod
    def to_types(cls, pb_object: Any) -> InferenceResponse:
        """Returns the message as a payload type."""
        contents = list(pb_object.raw_output_contents)
        return InferenceResponse.model_construct(
            model_name=pb_object.model_name,
            model_version=pb_object.model_version or None,
            id=pb_object.id,
            parameters=ParametersConverter.to_types(pb_object.parameters),
            outputs=_with_raw([InferOutputTensorConverter.to_types(tensor) for tensor in pb_object.outputs], contents),
        )

    @classmethod
    def from_types(cls, type_object: InferenceResponse, use_raw: bool = False) -> Any:
        """Returns the payload type as a message. If `use_raw` is true, the data is in raw contents."""
        return _pb.ModelInferResponse(
            model_name=type_object.model_name,
            model_version=type_object.model_version or "",
            id=type_object.id or "",
            parameters=ParametersConverter.from_types(type_object.parameters),
            outputs=[InferOutputTensorConverter.from_types(tensor, use_raw) for tensor in type_object.outputs],
            raw_output_contents=[raw.pack(tensor) for tensor in type_object.outputs] if use_raw else (),
        )


class InferOutputTensorConverter:
    """Outputs."""

    @classmethod
    def to_types(cls, pb_object: Any) -> ResponseOutput:
        """Returns the message as a payload type."""
        return ResponseOutput.model_construct(
            name=pb_object.name,
            shape=list(pb_object.shape),
            datatype=pb_object.datatype,
            parameters=ParametersConverter.to_types(pb_object.parameters),
            data=InferTensorContentsConverter.to_types(pb_object.contents),
        )

    @classmethod
    def from_types(cls, type_object: ResponseOutput, use_raw: bool = False) -> Any:
        """Returns the payload type as a message, without its data if `use_raw` is true."""
        return _pb.ModelInferResponse.InferOutputTensor(**_tensor_fields(type_object, use_raw))


class InferTensorContentsConverter:
    """The data of tensors, in the field for its datatype."""

    @classmethod
    def to_types(cls, pb_object: Any) -> TensorData:
        """Returns the elements of the field that is not empty."""
        for _, values in pb_object.ListFields():
            return TensorData(list(values))
        return TensorData([])

    @classmethod
    def from_types(cls, type_object: TensorData, datatype: Any) -> Any:
        """Returns the data as a message.

        Raises `TensorError` for data that does not match its datatype, and for 16-bit floats, which have no field.
        """
        name = _name(datatype)
        field = _CONTENTS_FIELDS.get(name)
        if field is None:
            raise TensorError(f"{name} tensors require raw contents; convert with `use_raw=True`")
        elements = pack(type_object.raw if isinstance(type_object, TensorData) else type_object, name)
        if isinstance(elements, BytesElements):
            elements = BytesElements(elements.buffer, elements.offsets)
        return _pb.InferTensorContents(**{field: elements.tolist()})


class ParametersConverter:
    """Parameters. Only booleans, integers and strings can be sent."""

    @classmethod
    def to_types(cls, pb_object: Mapping[str, Any]) -> Optional[Parameters]:
        """Returns the parameters of a message, or `None` if it has none."""
        if not pb_object:
            return None
        return _parameters({name: _parameter(value) for name, value in pb_object.items()})

    @classmethod
    def from_types(cls, type_object: Optional[Parameters]) -> Dict[str, Any]:
        """Returns the parameters for a message, without headers and values of other types."""
        found = {}
        for name, value in type_object or ():
            if isinstance(value, bool):
                found[name] = _pb.InferParameter(bool_param=value)
            elif isinstance(value, int):
                found[name] = _pb.InferParameter(int64_param=value)
            elif isinstance(value, str):
                found[name] = _pb.InferParameter(string_param=value)
        return found


class RepositoryIndexRequestConverter:
    """Requests for the list of models."""

    @classmethod
    def to_types(cls, pb_object: Any) -> RepositoryIndexRequest:
        """Returns the message as a payload type."""
        return RepositoryIndexRequest.model_construct(ready=pb_object.ready)

    @classmethod
    def from_types(cls, type_object: RepositoryIndexRequest) -> Any:
        """Not implemented, as in the original."""
        raise NotImplementedError("only the server converts these, and only to types")


class RepositoryIndexResponseConverter:
    """Lists of models."""

    @classmethod
    def to_types(cls, pb_object: Any) -> RepositoryIndexResponse:
        """Not implemented, as in the original."""
        raise NotImplementedError("only the server converts these, and only from types")

    @classmethod
    def from_types(cls, type_object: RepositoryIndexResponse, use_model_repository: bool = False) -> Any:
        """Returns the payload type as a message. If `use_model_repository` is true, it is one of the older service."""
        pb = _repository_pb if use_model_repository else _pb
        return pb.RepositoryIndexResponse(
            models=[RepositoryIndexResponseItemConverter.from_types(item, use_model_repository) for item in type_object]
        )


class RepositoryIndexResponseItemConverter:
    """Models of a list."""

    @classmethod
    def to_types(cls, pb_object: Any) -> RepositoryIndexResponseItem:
        """Not implemented, as in the original."""
        raise NotImplementedError("only the server converts these, and only from types")

    @classmethod
    def from_types(cls, type_object: RepositoryIndexResponseItem, use_model_repository: bool = False) -> Any:
        """Returns the payload type as a message. If `use_model_repository` is true, it is one of the older service."""
        pb = _repository_pb if use_model_repository else _pb
        return pb.RepositoryIndexResponse.ModelIndex(
            name=type_object.name,
            version=type_object.version or "",
            state=_name(type_object.state),
            reason=type_object.reason,
        )


def _name(value: Any) -> str:
    """Returns the value of an enumeration's member as text."""
    return str(getattr(value, "value", value))


def _parameter(value: Any) -> Any:
    choice = value.WhichOneof("parameter_choice")
    return getattr(value, choice) if choice else None


def _tensor_fields(tensor: Union[RequestInput, ResponseOutput], use_raw: bool) -> Dict[str, Any]:
    data: Any = tensor.data
    contents = _pb.InferTensorContents() if use_raw else InferTensorContentsConverter.from_types(data, tensor.datatype)
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "datatype": _name(tensor.datatype),
        "parameters": ParametersConverter.from_types(tensor.parameters),
        "contents": contents,
    }


def _with_raw(tensors: List[Any], contents: List[bytes]) -> List[Any]:
    """Sets the data of tensors without data from the raw contents, in order."""
    if not contents:
        return tensors
    remaining = iter(contents)
    for tensor in tensors:
        if len(tensor.data) > 0:
            continue
        content = next(remaining, None)
        if content is None:
            raise TensorError(f"tensor '{tensor.name}' has neither contents nor raw contents")
        if tensor.datatype == "BYTES":
            tensor.data = TensorData(raw.unpack(tensor, content))
        else:
            raw.check_size(tensor, content)
            # A writable copy, because arrays that are decoded from it must be writable.
            tensor.data = TensorData(FixedElements(tensor.datatype, memoryview(bytearray(content))))
    return tensors
