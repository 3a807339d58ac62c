"""JSON documents: one, or one for each element."""

from typing import Any

from mlserver.codecs import register_input_codec

from .elements import ElementsCodec, SingleElementCodec

__all__ = ["HuggingfaceListJSONCodec", "HuggingfaceSingleJSONCodec"]


@register_input_codec
class HuggingfaceSingleJSONCodec(SingleElementCodec):
    """A BYTES tensor of one element as the value of its JSON."""

    ContentType = "hg_json"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Returns whether `payload` is a dictionary."""
        return isinstance(payload, dict)


@register_input_codec
class HuggingfaceListJSONCodec(ElementsCodec):
    """A BYTES tensor as the values of its elements' JSON."""

    ContentType = "hg_jsonlist"

    @classmethod
    def is_item(cls, value: Any) -> bool:
        """Returns whether a value is a dictionary or a list."""
        return isinstance(value, (dict, list))
