"""Conversations, as JSON."""

from typing import Any, List

from mlserver.codecs import InputCodec, register_input_codec
from mlserver.codecs.lists import as_list
from mlserver.codecs.utils import as_input, bytes_output
from mlserver.types import RequestInput, ResponseOutput

from .values import decode_value, encode_value, is_conversation

__all__ = ["HuggingfaceConversationCodec"]


@register_input_codec
class HuggingfaceConversationCodec(InputCodec):
    """A BYTES tensor as a list of conversations, which transformers had up to 4.41."""

    ContentType = "hg_conversation"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Tells whether `payload` is a list of conversations."""
        return isinstance(payload, list) and bool(payload) and all(map(is_conversation, payload))

    @classmethod
    def encode_output(cls, name: str, payload: List[Any], **kwargs: Any) -> ResponseOutput:
        """Returns the output with the JSON of each conversation."""
        return bytes_output(name, [encode_value(item).encode() for item in payload], cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[Any]:
        """Returns the conversations."""
        return [decode_value(item) for item in as_list(response_output.data)]

    @classmethod
    def encode_input(cls, name: str, payload: List[Any], **kwargs: Any) -> RequestInput:
        """Returns the input with the JSON of each conversation."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Any]:
        """Returns the conversations."""
        return [decode_value(item) for item in as_list(request_input.data)]
