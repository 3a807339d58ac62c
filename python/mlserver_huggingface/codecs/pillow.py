"""Images of Pillow's, as base64 of their files."""

import base64
import binascii
import io
import sys
from typing import Any, Union

from mlserver._frameworks import import_framework
from mlserver.codecs.errors import CodecError

__all__ = ["decode_image", "encode_image", "is_image"]

#: What an image is written as when it does not come from a file.
_FORMAT = "png"


def is_image(value: Any) -> bool:
    """Returns whether a value is one of Pillow's images; nobody has one before Pillow is imported."""
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
