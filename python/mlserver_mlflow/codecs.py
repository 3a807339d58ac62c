"""The codec of named tensors."""

from typing import Any, Dict, Optional

from mlserver._tensor import is_array
from mlserver.codecs import NumpyCodec, RequestCodec, get_decoded, has_decoded, register_request_codec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestInput

__all__ = ["TensorDict", "TensorDictCodec"]

TensorDict = Dict[str, Any]


@register_request_codec
class TensorDictCodec(RequestCodec):
    """A request or response as a dictionary of tensors, decoded by their own content types, else as arrays."""

    ContentType = "dict"
    TypeHint = TensorDict

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a dictionary of arrays."""
        return isinstance(payload, dict) and all(is_array(value) for value in payload.values())

    @classmethod
    def encode_response(
        cls, model_name: str, payload: TensorDict, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        """Returns the response with an output for each entry."""
        return InferenceResponse(
            model_name=model_name,
            model_version=model_version,
            parameters=Parameters(content_type=cls.ContentType),
            outputs=[NumpyCodec.encode_output(name, value) for name, value in payload.items()],
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> TensorDict:
        """Returns an entry for each output."""
        return {output.name: _decoded(output) for output in response.outputs}

    @classmethod
    def encode_request(cls, payload: TensorDict, **kwargs: Any) -> InferenceRequest:
        """Returns the request with an input for each entry."""
        inputs = [NumpyCodec.encode_input(name, value) for name, value in payload.items()]
        return InferenceRequest(parameters=Parameters(content_type=cls.ContentType), inputs=inputs)

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> TensorDict:
        """Returns an entry for each input."""
        return {tensor.name: _decoded(tensor) for tensor in request.inputs}


def _decoded(tensor: Any) -> Any:
    if has_decoded(tensor):
        return get_decoded(tensor)
    # Inputs and outputs are decoded in the same way.
    return NumpyCodec.decode_input(tensor) if isinstance(tensor, RequestInput) else NumpyCodec.decode_output(tensor)
