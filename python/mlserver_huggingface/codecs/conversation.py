"""Conversations, as JSON."""

from typing import Any

from mlserver.codecs import register_input_codec

from .elements import ElementsCodec
from .values import is_conversation

__all__ = ["HuggingfaceConversationCodec"]


@register_input_codec
class HuggingfaceConversationCodec(ElementsCodec):
    """A BYTES tensor as a list of conversations, which transformers had up to 4.41."""

    ContentType = "hg_conversation"

    @classmethod
    def is_item(cls, value: Any) -> bool:
        """Returns whether a value is a conversation."""
        return is_conversation(value)
