"""JSON of values of pipelines, with images, arrays and, if the version supports them, conversations."""

import json
import math
import sys
from typing import Any, Union

from mlserver._tensor import is_array
from mlserver.codecs.errors import CodecError

from .pillow import decode_image, encode_image, is_image

__all__ = ["decode_value", "encode_value", "is_conversation", "to_conversation"]

_IMAGE = "data:image/"
_CONVERSATION = frozenset(("uuid", "past_user_inputs", "generated_responses", "new_user_input"))


def decode_value(text: Union[bytes, str]) -> Any:
    """Parses JSON, and converts representations of images and conversations to these objects.

    Raises `CodecError` if it is not valid JSON.
    """
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodecError(f"an element is expected as JSON: {error}") from error
    return _revived(value)


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return [_revived(item) if isinstance(item, dict) else item for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _CONVERSATION:
        return to_conversation(value)
    return {key: _revived_member(member) for key, member in value.items()}


def _revived_member(member: Any) -> Any:
    if isinstance(member, str) and member.startswith(_IMAGE):
        return decode_image(member.partition(",")[2])
    return _revived(member)


def encode_value(value: Any) -> str:
    """Returns the JSON of a value. NaN and infinite numbers become `null`."""
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Returns the representation of a value in JSON."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if is_image(value):
        file_format = (value.format or "png").lower()
        return f"{_IMAGE}{file_format};base64,{encode_image(value, file_format).decode()}"
    if is_conversation(value):
        return _described(value)
    # Arrays and tensors, and their scalars.
    if is_array(value) or hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="replace")
    return str(value)


def _conversation_class() -> Any:
    return getattr(sys.modules.get("transformers"), "Conversation", None)


def is_conversation(value: Any) -> bool:
    """Returns whether a value is a conversation, which transformers had up to 4.41."""
    return type(value).__name__ == "Conversation" and hasattr(value, "generated_responses")


def to_conversation(described: Any) -> Any:
    """Returns the conversation that a dictionary describes.

    Raises `CodecError` if it is invalid, or if the installed transformers does not support conversations.
    """
    conversation = _conversation_class()
    if conversation is None:
        raise CodecError("the installed transformers does not support conversations, which version 4.42 removed")
    if not isinstance(described, dict) or described.keys() != _CONVERSATION:
        raise CodecError(f"invalid conversation: expected an object with {', '.join(sorted(_CONVERSATION))}")
    return conversation(
        text=described["new_user_input"],
        conversation_id=described["uuid"],
        past_user_inputs=described["past_user_inputs"],
        generated_responses=described["generated_responses"],
    )


def _described(conversation: Any) -> Any:
    return {
        "uuid": str(conversation.uuid),
        "past_user_inputs": conversation.past_user_inputs,
        "generated_responses": conversation.generated_responses,
        "new_user_input": conversation.new_user_input,
    }
