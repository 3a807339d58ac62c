"""What codecs share: finding them for a request or a response, and keeping what was decoded."""

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
from . import base
from .base import (
    RequestCodec,
    find_input_codec,
    find_input_codec_by_payload,
    find_request_codec,
    find_request_codec_by_payload,
)
from .errors import CodecError

#: The attribute of parameters that keeps what was decoded.
DecodedParameterName = "_decoded_payload"

DefaultInputPrefix = "input-"
DefaultOutputPrefix = "output-"

InputOrOutput = Union[RequestInput, ResponseOutput]
Parametrised = Union[InferenceRequest, RequestInput, RequestOutput, ResponseOutput, InferenceResponse]


def checked_name(name: Any) -> str:
    """Returns the name of a tensor; raises `ValidationError` when it is no text."""
    if type(name) is str:
        return name
    return RequestOutput(name=name).name


def bytes_output(name: Any, data: List[Any], content_type: str) -> ResponseOutput:
    """Returns an output of BYTES elements, one for each row."""
    return tensor_output(checked_name(name), "BYTES", [len(data), 1], {"content_type": content_type}, data)


def inject_batch_dimension(shape: List[int]) -> List[int]:
    """Returns the shape that a response shows: `[N]` becomes `[N, 1]`, and a scalar `[1]`."""
    if not shape:
        return [1]
    return [shape[0], 1] if len(shape) == 1 else shape


def as_input(output: ResponseOutput) -> RequestInput:
    """Returns the input with the parts of an output."""
    return RequestInput(
        name=output.name,
        shape=output.shape,
        datatype=output.datatype,
        parameters=output.parameters,
        data=output.data,
    )


def _content_type(obj: Any, metadata: Any = None) -> Optional[str]:
    """Returns the content type that a payload names, else the one of its metadata."""
    for annotated in (obj, metadata):
        parameters = None if annotated is None else annotated.parameters
        if parameters is not None and parameters.content_type:
            return str(parameters.content_type)
    return None


def save_decoded(obj: Any, decoded: Any) -> None:
    """Keeps what was decoded from `obj` beside it."""
    if obj.parameters is None:
        # Not `obj.parameters = …`: keeping a value is no change that a dump may show.
        obj.__dict__["parameters"] = Parameters()
    setattr(obj.parameters, DecodedParameterName, decoded)


def has_decoded(parametrised_obj: Parametrised) -> bool:
    """Tells whether something decoded is kept beside a request, an input or an output."""
    return parametrised_obj.parameters is not None and hasattr(parametrised_obj.parameters, DecodedParameterName)


def get_decoded(parametrised_obj: Parametrised) -> Any:
    """Returns what was decoded and kept, or `None`."""
    return getattr(parametrised_obj.parameters, DecodedParameterName, None)


def get_decoded_or_raw(parametrised_obj: Any) -> Any:
    """Returns what was decoded and kept, else the data of a tensor, else the object."""
    if has_decoded(parametrised_obj):
        return get_decoded(parametrised_obj)
    return getattr(parametrised_obj, "data", parametrised_obj)


def decode_request_input(
    request_input: RequestInput, metadata_inputs: Optional[Dict[str, MetadataTensor]] = None
) -> Optional[Any]:
    """Decodes an input by the content type that it names, or its metadata; `None` without one."""
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
    """Decodes the inputs, each by its content type, then the request by its own; without one, returns the request."""
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
    """Encodes a value by the content type that is wanted, or the metadata's, else by what the value is."""
    metadata = metadata_outputs.get(request_output.name) if metadata_outputs else None
    content_type = _content_type(request_output, metadata)
    codec = find_input_codec(content_type) if content_type else find_input_codec_by_payload(payload)
    return codec.encode_output(request_output.name, payload) if codec else None


def encode_inference_response(payload: Any, model_settings: ModelSettings) -> Optional[InferenceResponse]:
    """Encodes a value as a whole response, by what the value is."""
    codec = find_request_codec_by_payload(payload)
    return codec.encode_response(model_settings.name, payload, model_settings.version) if codec else None


class SingleInputRequestCodec(RequestCodec):
    """The codec of requests that hold one tensor; subclasses name its codec in `InputCodec`."""

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
