"""The base classes of codecs, and the registry that finds the codec of a content type, a value or a type hint."""

import functools
import sys
import typing
from typing import Any, Callable, Dict, Iterable, List, Optional, Type, TypeVar, Union

from .._validate import is_union
from ..logging import logger
from ..types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput

__all__ = [
    "InputCodec",
    "InputCodecLike",
    "RequestCodec",
    "RequestCodecLike",
    "find_input_codec",
    "find_input_codec_by_payload",
    "find_input_codec_by_type_hint",
    "find_request_codec",
    "find_request_codec_by_payload",
    "find_request_codec_by_type_hint",
    "register_input_codec",
    "register_request_codec",
]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")


def deprecated(reason: str) -> Callable[[F], F]:
    """Makes a function log a warning each time it is called."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            logger.warning("DEPRECATED! %s", reason)
            return function(*args, **kwargs)

        return typing.cast(F, call)

    return decorate


def _missing(codec: type, method: str) -> NotImplementedError:
    """Returns the error for a method that a codec does not implement. A codec may only decode, for example."""
    return NotImplementedError(f"the codec {codec.__qualname__} does not implement `{method}`")


class LoadedType:
    """The type hint of a codec for an optional library: the type once the library is imported, else `NoneType`.

    Before the library is imported, no value or hint of that type can exist, so it need not be imported here.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        return getattr(sys.modules.get(self._module), self._name, type(None))


class InputCodec:
    """Converts one tensor to a value, and back. Register subclasses with `register_input_codec`, by their `ContentType`."""

    ContentType: str = ""
    TypeHint: Any = type(None)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether this codec can encode `payload`."""
        return False

    @classmethod
    def encode_output(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
        """Encodes `payload` as the output `name`."""
        raise _missing(cls, "encode_output")

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Decodes an output."""
        raise _missing(cls, "decode_output")

    @classmethod
    def encode_input(cls, name: str, payload: Any, **kwargs: Any) -> RequestInput:
        """Encodes `payload` as the input `name`."""
        raise _missing(cls, "encode_input")

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Decodes an input."""
        raise _missing(cls, "decode_input")

    @classmethod
    @deprecated("The encode() method is now deprecated. Use encode_output() instead.")
    def encode(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
        """Deprecated name of `encode_output`."""
        return cls.encode_output(name, payload, **kwargs)

    @classmethod
    @deprecated("The decode() method is now deprecated. Use decode_input() instead.")
    def decode(cls, request_input: RequestInput) -> Any:
        """Deprecated name of `decode_input`."""
        return cls.decode_input(request_input)


class RequestCodec:
    """Converts a whole request or response to a value, and back.

    Register subclasses with `register_request_codec`, by their `ContentType`.
    """

    ContentType: str = ""
    TypeHint: Any = type(None)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether this codec can encode `payload`."""
        return False

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        """Encodes `payload` as a response."""
        raise _missing(cls, "encode_response")

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        """Decodes a response."""
        raise _missing(cls, "decode_response")

    @classmethod
    def encode_request(cls, payload: Any, **kwargs: Any) -> InferenceRequest:
        """Encodes `payload` as a request."""
        raise _missing(cls, "encode_request")

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        """Decodes a request."""
        raise _missing(cls, "decode_request")

    @classmethod
    @deprecated("The encode() method is now deprecated. Use encode_response() instead.")
    def encode(
        cls, model_name: str, payload: Any, model_version: Optional[str] = None, **kwargs: Any
    ) -> InferenceResponse:
        """Deprecated name of `encode_response`."""
        return cls.encode_response(model_name, payload, model_version, **kwargs)

    @classmethod
    @deprecated("The decode() method is now deprecated. Use decode_request() instead.")
    def decode(cls, request: InferenceRequest) -> Any:
        """Deprecated name of `decode_request`."""
        return cls.decode_request(request)


InputCodecLike = Union[Type[InputCodec], InputCodec]
RequestCodecLike = Union[Type[RequestCodec], RequestCodec]


def plain_hint(hint: Any) -> Any:
    """Returns a hint in the spelling of `typing`, so that `list[str]` equals `List[str]`, and the same for unions."""
    # NumPy has aliases of its own, which `typing.get_origin` does not know on older Pythons.
    origin = typing.get_origin(hint) or getattr(hint, "__origin__", None)
    if origin is None:
        return hint
    if hasattr(origin, "__value__"):
        return plain_hint(origin.__value__)
    if is_union(hint):
        return Union[tuple(plain_hint(arg) for arg in typing.get_args(hint))]
    numpy = sys.modules.get("numpy")
    if numpy is not None and origin is numpy.ndarray:
        return origin
    args = tuple(plain_hint(arg) for arg in typing.get_args(hint))
    if origin is list and len(args) == 1 and not isinstance(args[0], TypeVar):
        return List[args[0]]  # type: ignore[valid-type]
    return hint


class _Registry:
    """Input codecs or request codecs, by content type, in the order of their registration."""

    def __init__(self) -> None:
        self._codecs: Dict[str, Any] = {}

    def register(self, codec: Any) -> None:
        self._codecs[codec.ContentType] = codec

    def find(self, content_type: Optional[str], payload: Any, type_hint: Any) -> Any:
        if content_type:
            return self._codecs.get(content_type)
        if payload is not None:
            return self.find_by_payload(payload)
        if type_hint is not None:
            return self.find_by_type_hint(type_hint)
        return None

    def find_by_payload(self, payload: Any) -> Any:
        matching = [codec for codec in self._codecs.values() if codec.can_encode(payload)]
        return _first(matching, f"payload with type {type(payload)}")

    def find_by_type_hint(self, type_hint: Any) -> Any:
        plain = plain_hint(type_hint)
        matching = [codec for codec in self._codecs.values() if _hints_match(codec.TypeHint, plain)]
        return _first(matching, f"type hint {type_hint}")


def _hints_match(hint: Any, plain: Any) -> bool:
    return bool(hint is not type(None) and plain_hint(hint) == plain)


def _first(matching: Iterable[Any], what: str) -> Any:
    found = list(matching)
    if not found:
        logger.debug("No codec was found for %s.", what)
        return None
    if len(found) > 1:
        logger.debug("%d codecs were found for %s; the first one is used (%s).", len(found), what, found[0].ContentType)
    return found[0]


_input_codecs = _Registry()
_request_codecs = _Registry()


def find_input_codec(
    content_type: Optional[str] = None, payload: Optional[Any] = None, type_hint: Optional[Any] = None
) -> Optional[InputCodecLike]:
    """Returns the input codec of a content type, else the first that matches the value or the hint, else `None`."""
    return typing.cast(Optional[InputCodecLike], _input_codecs.find(content_type, payload, type_hint))


def find_input_codec_by_payload(payload: Any) -> Optional[InputCodecLike]:
    """Returns the first input codec that can encode `payload`."""
    return typing.cast(Optional[InputCodecLike], _input_codecs.find_by_payload(payload))


def find_input_codec_by_type_hint(type_hint: Any) -> Optional[InputCodecLike]:
    """Returns the first input codec of values of that type."""
    return typing.cast(Optional[InputCodecLike], _input_codecs.find_by_type_hint(type_hint))


def find_request_codec(
    content_type: Optional[str] = None, payload: Optional[Any] = None, type_hint: Optional[Any] = None
) -> Optional[RequestCodecLike]:
    """Returns the request codec of a content type, else the first that matches the value or the hint, else `None`."""
    return typing.cast(Optional[RequestCodecLike], _request_codecs.find(content_type, payload, type_hint))


def find_request_codec_by_payload(payload: Any) -> Optional[RequestCodecLike]:
    """Returns the first request codec that can encode `payload`."""
    return typing.cast(Optional[RequestCodecLike], _request_codecs.find_by_payload(payload))


def find_request_codec_by_type_hint(type_hint: Any) -> Optional[RequestCodecLike]:
    """Returns the first request codec of values of that type."""
    return typing.cast(Optional[RequestCodecLike], _request_codecs.find_by_type_hint(type_hint))


def register_input_codec(codec: C) -> C:
    """Registers an input codec, a class or an instance, by its `ContentType`. Replaces an earlier one."""
    _input_codecs.register(codec)
    return codec


def register_request_codec(codec: C) -> C:
    """Registers a request codec, a class or an instance, by its `ContentType`. Replaces an earlier one."""
    _request_codecs.register(codec)
    return codec
