"""Images, as base64 of their files."""

import base64
import binascii
import io
import sys
from typing import Any, List, Union

from mlserver._frameworks import import_framework
from mlserver.codecs import InputCodec, register_input_codec
from mlserver.codecs.errors import CodecError
from mlserver.codecs.lists import as_list
from mlserver.codecs.utils import as_input, bytes_output
from mlserver.types import RequestInput, ResponseOutput

__all__ = ["PILImageCodec", "decode_image", "encode_image", "is_image"]

#: What an image is written as when it does not come from a file.
_FORMAT = "png"


def is_image(value: Any) -> bool:
    """Tells whether a value is one of Pillow's images; nobody has one before Pillow is imported."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def decode_image(encoded: Union[bytes, str]) -> Any:
    """Returns the image that base64 spells.

    Raises `CodecError` when it is no base64, or of no image.
    """
    pillow = import_framework("PIL.Image", "pillow")
    try:
        image = pillow.open(io.BytesIO(base64.b64decode(encoded, validate=True)))
        image.load()
    except binascii.Error as error:
        raise CodecError(f"an image is expected as base64 of its file: {error}") from error
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        # Without what Pillow says of its buffer's address.
        reason = "not one that Pillow knows" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise CodecError(f"an image cannot be read: {reason}") from error
    return image


def encode_image(image: Any, file_format: str = "") -> bytes:
    """Returns an image as base64 of a file of its own format, or of the one that is asked for."""
    buffer = io.BytesIO()
    image.save(buffer, format=file_format or image.format or _FORMAT)
    return base64.b64encode(buffer.getvalue())


@register_input_codec
class PILImageCodec(InputCodec):
    """A BYTES tensor as a list of images."""

    ContentType = "pillow_image"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Tells whether `payload` is a list of images."""
        return isinstance(payload, list) and bool(payload) and all(map(is_image, payload))

    @classmethod
    def encode_output(cls, name: str, payload: List[Any], **kwargs: Any) -> ResponseOutput:
        """Returns the output with each image's file."""
        return bytes_output(name, [encode_image(image) for image in payload], cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[Any]:
        """Returns the images."""
        return [decode_image(item) for item in as_list(response_output.data)]

    @classmethod
    def encode_input(cls, name: str, payload: List[Any], **kwargs: Any) -> RequestInput:
        """Returns the input with each image's file."""
        return as_input(cls.encode_output(name, payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Any]:
        """Returns the images."""
        return [decode_image(item) for item in as_list(request_input.data)]
