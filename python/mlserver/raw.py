"""The raw form of tensors: little-endian elements without gaps. Each BYTES element is preceded by its length in four bytes."""

import struct
from typing import Any, List, Tuple

from ._tensor import WIDTHS, BytesElements, FixedElements, TensorError
from ._tensor import pack as _pack
from .codecs.utils import InputOrOutput
from .types import TensorData

__all__ = ["extract_raw", "inject_raw", "pack", "unpack"]


def pack(elem: InputOrOutput) -> bytes:
    """Returns the data of a tensor in raw form."""
    data: Any = elem.data
    elements = _pack(data.raw if isinstance(data, TensorData) else data, _datatype_of(elem))
    if isinstance(elements, FixedElements):
        return elements.buffer.tobytes()
    parts: List[bytes] = []
    for item in BytesElements(elements.buffer, elements.offsets).tolist():
        parts += (struct.pack("<I", len(item)), item)
    return b"".join(parts)


def unpack(elem: InputOrOutput, raw: bytes) -> List[Any]:
    """Returns the elements in raw data. `elem` has the tensor's name, datatype and shape.

    Raises `TensorError` if the number of bytes does not match the datatype and shape.
    """
    datatype = _datatype_of(elem)
    if datatype == "BYTES":
        return list(_split(raw))
    check_size(elem, raw)
    return FixedElements(datatype, memoryview(raw)).tolist()


def check_size(elem: InputOrOutput, raw: bytes) -> None:
    """Raises `TensorError` if the number of bytes does not match the datatype and shape."""
    datatype = _datatype_of(elem)
    if datatype not in WIDTHS:
        raise TensorError(f"'{datatype}' is not a datatype")
    count = 1
    for dimension in elem.shape:
        count *= dimension
    if len(raw) != count * WIDTHS[datatype]:
        raise TensorError(
            f"tensor '{elem.name}' of {count} {datatype} elements needs {count * WIDTHS[datatype]} bytes,"
            f" but {len(raw)} were given"
        )


def _datatype_of(elem: InputOrOutput) -> str:
    datatype: Any = elem.datatype
    return str(getattr(datatype, "value", datatype))


def _split(raw: bytes) -> List[bytes]:
    elements = []
    start = 0
    while start < len(raw):
        if start + 4 > len(raw):
            raise TensorError("raw BYTES data ends within a length")
        (length,) = struct.unpack_from("<I", raw, start)
        start += 4
        if start + length > len(raw):
            raise TensorError("raw BYTES data ends within an element")
        elements.append(raw[start : start + length])
        start += length
    return elements


def inject_raw(elems: List[InputOrOutput], raw_contents: List[bytes]) -> List[InputOrOutput]:
    """Sets the data of tensors without data from `raw_contents`, in order, and returns the tensors."""
    contents = iter(raw_contents)
    if raw_contents:
        for elem in elems:
            if len(elem.data) == 0:
                elem.data = TensorData(unpack(elem, next(contents)))
    return elems


def extract_raw(elems: List[InputOrOutput]) -> Tuple[List[InputOrOutput], List[bytes]]:
    """Removes the data from tensors. Returns the tensors, and their data in raw form."""
    raw_contents = []
    for elem in elems:
        raw_contents.append(pack(elem))
        elem.data = TensorData([])
    return elems, raw_contents
