"""The base class of models."""

from contextlib import suppress
from typing import Any, AsyncIterator, Dict, List, Optional

from .codecs import (
    InputCodecLike,
    RequestCodecLike,
    decode_inference_request,
    decode_request_input,
    encode_inference_response,
    encode_response_output,
)
from .codecs.errors import CodecNotFound
from .codecs.utils import get_decoded, has_decoded
from .settings import ModelSettings
from .types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)

__all__ = ["MLModel"]


class MLModel:
    """The base class of models. Override `predict`, and `load` if there is something to load.

    There is one instance per process and version. Calls of `predict` may overlap if it is a coroutine.

        class Doubler(MLModel):
            async def load(self) -> bool:
                self._factor = 2
                return True

            async def predict(self, payload: InferenceRequest) -> InferenceResponse:
                values = self.decode(payload.inputs[0], default_codec=NumpyCodec)
                output = NumpyCodec.encode_output("doubled", values * self._factor)
                return InferenceResponse(model_name=self.name, outputs=[output])
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._inputs_index = _by_name(settings.inputs)
        self._outputs_index = _by_name(settings.outputs)
        with suppress(AttributeError):  # a subclass has a property without a setter
            #: Whether the model can answer: the return value of `load`.
            self.ready = False

    async def load(self) -> bool:
        """Loads the model, and returns whether it is ready. If it raises an exception, the load fails."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the response to a request. It may be a coroutine or a plain function.

        async def predict(self, payload: InferenceRequest) -> InferenceResponse:
            rows = self.decode_request(payload, default_codec=NumpyRequestCodec)
            return self.encode_response(self._model.predict(rows), default_codec=NumpyRequestCodec)
        """
        raise NotImplementedError("predict() method not implemented")

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        """Answers a stream of requests with a stream of responses. By default, answers the first request with `predict`."""
        async for payload in payloads:
            yield await self.predict(payload)
            return

    async def unload(self) -> bool:
        """Frees the model's resources. Called when the model is unloaded or replaced."""
        return True

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._settings.name

    @property
    def version(self) -> Optional[str]:
        """The version of the model, if it has one."""
        return self._settings.version

    @property
    def settings(self) -> ModelSettings:
        """The settings of the model."""
        return self._settings

    @property
    def inputs(self) -> Optional[List[MetadataTensor]]:
        """The metadata of the inputs. Their content types are used if a request has none."""
        return self._settings.inputs

    @inputs.setter
    def inputs(self, value: List[MetadataTensor]) -> None:
        self._settings.inputs = value
        self._inputs_index = _by_name(value)

    @property
    def outputs(self) -> Optional[List[MetadataTensor]]:
        """The metadata of the outputs. Their content types are used if a request has none."""
        return self._settings.outputs

    @outputs.setter
    def outputs(self, value: List[MetadataTensor]) -> None:
        self._settings.outputs = value
        self._outputs_index = _by_name(value)

    def decode(self, request_input: RequestInput, default_codec: Optional[InputCodecLike] = None) -> Any:
        """Decodes an input with the codec of its content type, else that of its metadata, else `default_codec`.

        Without any of them, returns the input's data.
        """
        decoded = decode_request_input(request_input, self._inputs_index)
        if decoded is not None:
            return decoded
        if has_decoded(request_input):
            return get_decoded(request_input)
        if default_codec is not None:
            return default_codec.decode_input(request_input)
        return request_input.data

    def decode_request(
        self, inference_request: InferenceRequest, default_codec: Optional[RequestCodecLike] = None
    ) -> Any:
        """Decodes a request with the codec of its content type, else that of the model, else `default_codec`.

        Without any of them, returns the request.
        """
        decoded = decode_inference_request(inference_request, self._settings, self._inputs_index)
        if decoded is not inference_request:
            return decoded
        if default_codec is not None:
            return default_codec.decode_request(inference_request)
        return inference_request

    def encode_response(self, payload: Any, default_codec: Optional[RequestCodecLike] = None) -> InferenceResponse:
        """Encodes a value as a response with the codec of the value's type, else `default_codec`."""
        encoded = encode_inference_response(payload, self._settings)
        if encoded is not None:
            return encoded
        if default_codec is not None:
            return default_codec.encode_response(self.name, payload, self.version)
        raise CodecNotFound(payload_type=str(type(payload)), is_request=True)

    def encode(
        self, payload: Any, request_output: RequestOutput, default_codec: Optional[InputCodecLike] = None
    ) -> ResponseOutput:
        """Encodes a value as an output with the codec of the requested content type, else that of the value's type.

        Without either of them, uses `default_codec`.
        """
        encoded = encode_response_output(payload, request_output, self._outputs_index)
        if encoded is not None:
            return encoded
        if default_codec is not None:
            return default_codec.encode_output(request_output.name, payload)
        raise CodecNotFound(name=request_output.name)

    async def metadata(self) -> MetadataModelResponse:
        """Returns the metadata of the model."""
        return metadata_of(self._settings)


def metadata_of(settings: ModelSettings) -> MetadataModelResponse:
    """Returns the metadata that the settings of a model describe."""
    metadata = MetadataModelResponse(
        name=settings.name,
        versions=settings.versions,
        platform=settings.platform,
        inputs=settings.inputs,
        outputs=settings.outputs,
    )
    if settings.parameters is not None:
        metadata.parameters = Parameters(content_type=settings.parameters.content_type)
    return metadata


def _by_name(tensors: Optional[List[MetadataTensor]]) -> Dict[str, MetadataTensor]:
    return {tensor.name: tensor for tensor in tensors or ()}
