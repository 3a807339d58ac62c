"""`decode_args`: a `predict` that takes and returns values, with codecs chosen by its type hints."""

import functools
import inspect
import typing
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Dict, List, Optional, Tuple

from .._hints import hints_of, single
from .._payload import inference_response
from .._validate import is_union
from ..types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput
from .base import (
    InputCodec,
    RequestCodec,
    find_input_codec_by_type_hint,
    find_request_codec_by_type_hint,
    plain_hint,
)
from .errors import CodecNotFound, InputMissing, InputsNotFound, OutputNotFound
from .utils import Codec, DefaultOutputPrefix

if TYPE_CHECKING:
    from ..model import MLModel

__all__ = ["SignatureCodec", "decode_args"]

PredictFunc = Callable[["MLModel", InferenceRequest], Coroutine[Any, Any, InferenceResponse]]


def _unwrap_optional(hint: Any) -> Any:
    """Returns `T` for `Optional[T]`, and any other hint as it is."""
    if not is_union(hint):
        return hint
    args = typing.get_args(hint)
    rest = [arg for arg in args if arg is not type(None)]
    return rest[0] if len(rest) == 1 and len(rest) < len(args) else hint


def _is_request_codec(codec: Codec) -> bool:
    return isinstance(codec, RequestCodec) or (isinstance(codec, type) and issubclass(codec, RequestCodec))


def _is_input_codec(codec: Codec) -> bool:
    return isinstance(codec, InputCodec) or (isinstance(codec, type) and issubclass(codec, InputCodec))


class SignatureCodec(RequestCodec):
    """Converts a request to the arguments of a function, and its return value to a response."""

    def __init__(self, predict: Callable[..., Any]) -> None:
        """Finds the codecs of all hints. Raises `CodecNotFound` for a hint without a codec."""
        hints = hints_of(predict)
        returned = hints.pop("return", None)
        self._input_hints: Dict[str, Any] = {
            name: _unwrap_optional(single(hint)) for name, hint in hints.items()
        }
        self._output_hints: List[Any] = _output_hints(returned)
        self._input_codecs: Dict[str, Codec] = {
            name: self._find_codec(name, hint, is_input=True) for name, hint in self._input_hints.items()
        }
        self._output_codecs: List[Codec] = [self._find_codec(None, hint) for hint in self._output_hints]
        #: By name, whether the codec is that of one input.
        self._is_input: Dict[str, bool] = {name: _is_input_codec(codec) for name, codec in self._input_codecs.items()}
        self._outputs_are_inputs = [_is_input_codec(codec) for codec in self._output_codecs]
        #: The arguments without a default.
        self._required = [
            name
            for name, parameter in inspect.signature(predict).parameters.items()
            if parameter.default is parameter.empty and name in self._input_codecs
        ]
        frames = [(name, codec) for name, codec in self._input_codecs.items() if _is_request_codec(codec)]
        self._request_codec: Optional[Tuple[str, Any]] = frames[0] if frames else None

    @staticmethod
    def _find_codec(name: Optional[str], hint: Any, is_input: bool = False) -> Codec:
        codec = find_input_codec_by_type_hint(hint) or find_request_codec_by_type_hint(hint)
        if codec is None:
            raise CodecNotFound(name=name, payload_type=str(hint), is_input=is_input)
        return codec

    def decode_request(self, request: InferenceRequest) -> Dict[str, Any]:  # type: ignore[override]
        """Returns the arguments: inputs by name, and all other inputs as the argument that takes a whole request."""
        values: Dict[str, Any] = {}
        others: List[RequestInput] = []
        for tensor in request.inputs:
            codec: Any = self._input_codecs.get(tensor.name)
            if codec is None:
                others.append(tensor)
            elif not self._is_input[tensor.name]:
                raise CodecNotFound(name=tensor.name, is_input=True)
            else:
                values[tensor.name] = codec.decode_input(tensor)
        if others:
            if self._request_codec is None:
                raise InputsNotFound(others, self._input_codecs)
            name, request_codec = self._request_codec
            values[name] = request_codec.decode_request(
                InferenceRequest(inputs=others, parameters=request.parameters, outputs=request.outputs)
            )
        for name in self._required:
            if name not in values:
                raise InputMissing(name, self._input_codecs)
        return values

    def encode_response(  # type: ignore[override]
        self, model_name: str, payload: Any, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        """Returns the response with the return value of the function: one value, or a tuple of values."""
        values = [] if payload is None else list(payload) if isinstance(payload, tuple) else [payload]
        outputs: List[ResponseOutput] = []
        for index, value in enumerate(values):
            outputs.extend(self._encode_outputs(index, value))
        return inference_response(model_name, model_version, outputs)

    def _encode_outputs(self, index: int, value: Any) -> List[ResponseOutput]:
        codec: Any = self._output_codecs[index] if index < len(self._output_codecs) else None
        if codec is None or not codec.can_encode(value):
            raise OutputNotFound(index, type(value), self._output_hints)
        if self._outputs_are_inputs[index]:
            return [codec.encode_output(f"{DefaultOutputPrefix}{index}", value)]
        return list(codec.encode_response(model_name="", payload=value).outputs)


def _output_hints(returned: Any) -> List[Any]:
    if returned is None or returned is type(None):
        return []
    if isinstance(returned, (tuple, list)):  # `-> (np.ndarray, pd.DataFrame)`
        return [_unwrap_optional(plain_hint(hint)) for hint in returned]
    if typing.get_origin(returned) is tuple:
        hints = [arg for arg in typing.get_args(returned) if arg is not ...]
        return [_unwrap_optional(plain_hint(hint)) for hint in hints]
    return [_unwrap_optional(returned)]


def decode_args(predict: Callable[..., Any]) -> PredictFunc:
    """Turns a method that takes and returns values into a `predict`.

    Inputs are matched with arguments by name. The type hint of an argument selects the codec that decodes its input, and
    overrides the content type in the request. The type hints of the returned values select the codecs that encode them, as
    `output-0`, `output-1` and so on.

        class Adder(MLModel):
            @decode_args
            async def predict(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
                return a + b
    """
    codec = SignatureCodec(predict)
    is_coroutine = inspect.iscoroutinefunction(predict)

    @functools.wraps(predict)
    async def wrapped(self: "MLModel", request: InferenceRequest) -> InferenceResponse:
        arguments = codec.decode_request(request)
        returned = predict(self, **arguments)
        values = await returned if is_coroutine or inspect.isawaitable(returned) else returned
        return codec.encode_response(self.name, values, self.version)

    return wrapped
