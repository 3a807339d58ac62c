"""The codecs of pipelines' arguments and results."""

# ruff: noqa: I001 - the order of these imports is the order of registration
from mlserver._legacy import missing_names

from .image import PILImageCodec
from .conversation import HuggingfaceConversationCodec
from .json import HuggingfaceListJSONCodec, HuggingfaceSingleJSONCodec
from .arrays import NumpyListCodec
from .raw import RawCodec
from .request import HuggingfaceRequestCodec

__all__ = [
    "HuggingfaceConversationCodec",
    "HuggingfaceListJSONCodec",
    "HuggingfaceRequestCodec",
    "HuggingfaceSingleJSONCodec",
    "NumpyListCodec",
    "PILImageCodec",
    "RawCodec",
]

__getattr__ = missing_names(__name__)
