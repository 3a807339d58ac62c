"""Helpers shared by codecs: finding the codec of a request or response, and caching decoded values."""

from typing import Any, Dict, List, Optional, Type, Union

from .._payload import tensor_output
from ..settings import ModelSettings
from ..types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)
from ..types.dataplane import own_attribute
from . import base
from .base import (
    InputCodecLike,
    RequestCodec,
    RequestCodecLike,
    find_input_codec,
    find_input_codec_by_payload,
    find_request_codec,
    find_request_codec_by_payload,
)
from .errors import CodecError

#: The attribute of parameters that caches the decoded value.
DecodedParameterName = "_decoded_payload"

_MISSING = object()

DefaultInputPrefix = "input-"
DefaultOutputPrefix = "output-"

InputOrOutput = Union[RequestInput, ResponseOutput]
Codec = Union[InputCodecLike, RequestCodecLike]
Parametrised = Union[InferenceRequest, RequestInput, RequestOutput, ResponseOutput, InferenceResponse]


def checked_name(name: Any) -> str:
    """Returns the name of a tensor. Raises `ValidationError` if it is not a string."""
    if type(name) is str:
        return name
    return RequestOutput(name=name).name


def bytes_output(name: Any, data: List[Any], content_type: str) -> ResponseOutput:
    """Returns an output of BYTES elements, one for each row."""
    return tensor_output(checked_name(name), "BYTES", [len(data), 1], {"content_type": content_type}, data)


def inject_batch_dimension(shape: List[int]) -> List[int]:
    """Returns the shape for a response: `[N]` becomes `[N, 1]`, and that of a scalar `[1]`."""
    if not shape:
        return [1]
    return [shape[0], 1] if len(shape) == 1 else shape


def as_input(output: ResponseOutput) -> RequestInput:
    """Returns an input with the fields of an output."""
    return RequestInput(
        name=output.name,
        shape=output.shape,
        datatype=output.datatype,
        parameters=output.parameters,
        data=output.data,
    )


def _content_type(obj: Any, metadata: Any = None) -> Optional[str]:
    """Returns the content type of a payload, else that of its metadata."""
    for annotated in (obj, metadata):
        parameters = None if annotated is None else annotated.parameters
        if parameters is not None and parameters.content_type:
            return str(parameters.content_type)
    return None


def save_decoded(obj: Any, decoded: Any) -> None:
    """Caches the decoded value of `obj` with it."""
    if obj.parameters is None:
        # Not `obj.parameters = …`, because the cached value must not appear in a dump.
        obj.__dict__["parameters"] = Parameters()
    setattr(obj.parameters, DecodedParameterName, decoded)


#: The name in MLServer 1.x, which forks of its runtimes import.
_save_decoded = save_decoded


def has_decoded(parametrised_obj: Parametrised) -> bool:
    """Returns whether a decoded value is cached with a request, an input or an output."""
    parameters = parametrised_obj.parameters
    # Looking up an attribute that is missing raises an exception, which most requests can do without.
    return parameters is not None and own_attribute(parameters, DecodedParameterName, _MISSING) is not _MISSING


def get_decoded(parametrised_obj: Parametrised) -> Any:
    """Returns the cached decoded value, or `None`."""
    return own_attribute(parametrised_obj.parameters, DecodedParameterName)


def get_decoded_or_raw(parametrised_obj: Any) -> Any:
    """Returns the cached decoded value, else the data of a tensor, else the object."""
    if has_decoded(parametrised_obj):
        return get_decoded(parametrised_obj)
    return getattr(parametrised_obj, "data", parametrised_obj)


def decode_request_input(
    request_input: RequestInput, metadata_inputs: Optional[Dict[str, MetadataTensor]] = None
) -> Optional[Any]:
    """Decodes an input by its content type, else that of its metadata. Returns `None` if there is none."""
    metadata = metadata_inputs.get(request_input.name) if metadata_inputs else None
    content_type = _content_type(request_input, metadata)
    codec = find_input_codec(content_type) if content_type else None
    if codec is None:
        return None
    decoded = codec.decode_input(request_input)
    save_decoded(request_input, decoded)
    return decoded


def decode_inference_request(
    inference_request: InferenceRequest,
    model_settings: Optional[ModelSettings] = None,
    metadata_inputs: Optional[Dict[str, MetadataTensor]] = None,
) -> Optional[Any]:
    """Decodes each input by its content type, then the request by its own. Without one, returns the request."""
    for request_input in inference_request.inputs:
        decode_request_input(request_input, metadata_inputs)
    content_type = _content_type(inference_request, model_settings)
    codec = find_request_codec(content_type) if content_type else None
    if codec is None:
        return inference_request
    decoded = codec.decode_request(inference_request)
    save_decoded(inference_request, decoded)
    return decoded


def encode_response_output(
    payload: Any, request_output: RequestOutput, metadata_outputs: Optional[Dict[str, MetadataTensor]] = None
) -> Optional[ResponseOutput]:
    """Encodes a value by the requested content type, else that of the metadata, else by the value's type."""
    metadata = metadata_outputs.get(request_output.name) if metadata_outputs else None
    content_type = _content_type(request_output, metadata)
    codec = find_input_codec(content_type) if content_type else find_input_codec_by_payload(payload)
    return codec.encode_output(request_output.name, payload) if codec else None


def encode_inference_response(payload: Any, model_settings: ModelSettings) -> Optional[InferenceResponse]:
    """Encodes a value as a whole response, by the value's type."""
    codec = find_request_codec_by_payload(payload)
    return codec.encode_response(model_settings.name, payload, model_settings.version) if codec else None


class SingleInputRequestCodec(RequestCodec):
    """The base class of codecs of requests with one tensor. Subclasses set its codec in `InputCodec`."""

    InputCodec: Optional[Type[base.InputCodec]] = None

    @classmethod
    def _codec(cls) -> Type[base.InputCodec]:
        if cls.InputCodec is None:
            raise NotImplementedError(f"no InputCodec was specified for {cls.__name__}")
        return cls.InputCodec

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.InputCodec is not None and cls.InputCodec.can_encode(payload)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        output = cls._codec().encode_output(f"{DefaultOutputPrefix}1", payload, **kwargs)
        return InferenceResponse(
            model_name=model_name,
            model_version=model_version,
            parameters=Parameters(content_type=cls.ContentType),
            outputs=[output],
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        cls._check_single(len(response.outputs), "output")
        output = response.outputs[0]
        if not has_decoded(output):
            save_decoded(output, cls._codec().decode_output(output))
        return get_decoded(output)

    @classmethod
    def encode_request(cls, payload: Any, **kwargs: Any) -> InferenceRequest:
        tensor = cls._codec().encode_input(f"{DefaultInputPrefix}1", payload, **kwargs)
        return InferenceRequest(parameters=Parameters(content_type=cls.ContentType), inputs=[tensor])

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        cls._check_single(len(request.inputs), "input")
        tensor = request.inputs[0]
        if not has_decoded(tensor):
            save_decoded(tensor, cls._codec().decode_input(tensor))
        return get_decoded(tensor)

    @classmethod
    def _check_single(cls, count: int, side: str) -> None:
        if count != 1:
            raise CodecError(
                f"The '{cls.ContentType}' codec only supports a single {side} tensor ({count} were received)"
            )
