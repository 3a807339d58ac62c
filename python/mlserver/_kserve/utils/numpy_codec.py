"""Datatypes of NumPy and of the protocol."""

from typing import Any, Dict, Optional

__all__ = ["from_np_dtype", "to_np_dtype"]

_KINDS: Dict[str, str] = {"b": "BOOL", "i": "INT", "u": "UINT", "f": "FP", **dict.fromkeys("OSUM", "BYTES")}
_NAMES: Dict[str, str] = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object_",
}


def from_np_dtype(np_dtype: Any) -> Optional[str]:
    """Returns the protocol's name of a NumPy dtype, or `None` if it has none."""
    import numpy as np

    dtype = np.dtype(np_dtype)
    name = _KINDS.get(dtype.kind)
    if name in ("INT", "UINT", "FP"):
        name += str(dtype.itemsize * 8)
    return name if name in _NAMES else None


def to_np_dtype(dtype: Optional[str]) -> Any:
    """Returns the NumPy type of a datatype of the protocol, or `None` for other datatypes."""
    import numpy as np

    if dtype == "BOOL":
        return bool
    name = None if dtype is None else _NAMES.get(dtype)
    return None if name is None else getattr(np, name)
