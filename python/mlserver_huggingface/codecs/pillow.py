"""Pillow images, as base64 of their files."""

import base64
import binascii
import io
import sys
from typing import Any, Union

from mlserver._frameworks import import_framework
from mlserver.codecs.errors import CodecError

__all__ = ["decode_image", "encode_image", "is_image"]

#: The file format of images that were not read from a file.
_FORMAT = "png"


def is_image(value: Any) -> bool:
    """Returns whether a value is a Pillow image, without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def decode_image(encoded: Union[bytes, str]) -> Any:
    """Decodes an image from base64.

    Raises `CodecError` if it is not base64 of an image.
    """
    pillow = import_framework("PIL.Image", "pillow")
    try:
        image = pillow.open(io.BytesIO(base64.b64decode(encoded, validate=True)))
        image.load()
    except binascii.Error as error:
        raise CodecError(f"an image is expected as base64 of its file: {error}") from error
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        # Without the address of the buffer that Pillow's message contains.
        reason = "its format is unknown to Pillow" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise CodecError(f"an image cannot be read: {reason}") from error
    return image


def encode_image(image: Any, file_format: str = "") -> bytes:
    """Returns an image as base64 of a file, by default in the image's own format."""
    buffer = io.BytesIO()
    image.save(buffer, format=file_format or image.format or _FORMAT)
    return base64.b64encode(buffer.getvalue())
