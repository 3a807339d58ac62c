"""JSON in the elements of BYTES tensors."""

import json
from typing import Any, List, Union

from .._dump import to_json
from .._tensor import is_array
from .lists import as_list
from .string import encode_str
from .utils import InputOrOutput

__all__ = [
    "JSONEncoderWithArray",
    "decode_from_bytelike_json_to_dict",
    "decode_json_input_or_output",
    "encode_to_json",
    "encode_to_json_bytes",
]


class JSONEncoderWithArray(json.JSONEncoder):
    """Writes NumPy's arrays as lists, and its scalars as numbers."""

    def default(self, obj: Any) -> Any:
        """Returns the replacement of `obj` in JSON."""
        if is_array(obj) or (hasattr(obj, "dtype") and hasattr(obj, "item")):
            return obj.tolist()
        return super().default(obj)


def encode_to_json(v: Any, use_bytes: bool = True) -> Union[str, bytes]:
    """Returns compact JSON of a value, which may contain NumPy arrays and numbers, as UTF-8 or as text.

    Raises `ValueError` for NaN and infinite numbers, which JSON lacks.
    """
    encoded = json.dumps(v, ensure_ascii=False, separators=(",", ":"), allow_nan=False, cls=JSONEncoderWithArray)
    return encode_str(encoded) if use_bytes else encoded


def encode_to_json_bytes(v: Any) -> bytes:
    """Returns compact JSON of a value, which may contain bytes, as UTF-8. NaN and infinite numbers become `null`."""
    from .._dump import jsonable

    return to_json(jsonable(v)).encode()


def decode_from_bytelike_json_to_dict(v: Union[bytes, str]) -> Any:
    """Parses JSON."""
    return json.loads(v)


def decode_json_input_or_output(input_or_output: InputOrOutput) -> List[Any]:
    """Parses the elements of a tensor as JSON."""
    return [decode_from_bytelike_json_to_dict(item) for item in as_list(input_or_output.data)]
