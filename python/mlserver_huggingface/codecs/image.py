"""Images, as base64 of their files."""

from typing import Any, Union

from mlserver.codecs import register_input_codec

from .elements import ElementsCodec
from .pillow import decode_image, encode_image, is_image

__all__ = ["PILImageCodec"]


@register_input_codec
class PILImageCodec(ElementsCodec):
    """A BYTES tensor as a list of images."""

    ContentType = "pillow_image"

    @classmethod
    def is_item(cls, value: Any) -> bool:
        """Returns whether a value is an image."""
        return is_image(value)

    @classmethod
    def encode_item(cls, item: Any) -> bytes:
        """Returns base64 of the image's file."""
        return encode_image(item)

    @classmethod
    def decode_item(cls, element: Union[bytes, str]) -> Any:
        """Returns the image."""
        return decode_image(element)
