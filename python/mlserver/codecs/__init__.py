"""Codecs convert the values of user code to tensors, and back.

An input codec converts one tensor, a request codec a whole request. Both are found by content type, or by the type of a
value. If several match, the first registered one is used: text, arrays, base64, times; text, arrays, data frames.
"""

# ruff: noqa: I001 - the order of these imports is the order of registration
from .base import (
    InputCodec,
    InputCodecLike,
    RequestCodec,
    RequestCodecLike,
    register_input_codec,
    register_request_codec,
)
from .string import StringCodec, StringRequestCodec
from .numpy import NumpyCodec, NumpyRequestCodec
from .base64 import Base64Codec
from .datetime import DatetimeCodec
from .pandas import PandasCodec
from .decorator import decode_args
from .errors import CodecError
from .utils import (
    DecodedParameterName,
    decode_inference_request,
    decode_request_input,
    encode_inference_response,
    encode_response_output,
    get_decoded,
    get_decoded_or_raw,
    has_decoded,
)

__all__ = [
    "Base64Codec",
    "CodecError",
    "DatetimeCodec",
    "DecodedParameterName",
    "InputCodec",
    "InputCodecLike",
    "NumpyCodec",
    "NumpyRequestCodec",
    "PandasCodec",
    "RequestCodec",
    "RequestCodecLike",
    "StringCodec",
    "StringRequestCodec",
    "decode_args",
    "decode_inference_request",
    "decode_request_input",
    "encode_inference_response",
    "encode_response_output",
    "get_decoded",
    "get_decoded_or_raw",
    "has_decoded",
    "register_input_codec",
    "register_request_codec",
]
