"""Frames as bytes; see `docs/worker-protocol.md`. Nothing here knows of sockets."""

import enum
import json
import struct
import sys
from functools import lru_cache
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .._payload import WireTensor, inference_request, requested_output, tensor_input, wire_outputs, wire_parameters
from .._tensor import BytesElements, Elements, FixedElements

PROTOCOL = 1

MAX_HEAD = 16 << 20
MAX_TAIL = 4 << 30

#: Calls that may be open at once; the low bits of an id name the slot.
SLOTS = 256

_HEADER = struct.Struct("<B3xIQQ")
HEADER_BYTES = _HEADER.size

_ALIGNMENT = 8
_PADDING = bytes(_ALIGNMENT)

Buffer = Union[bytes, bytearray, memoryview]

#: A head, or its JSON; nothing for none.
Head = Union[Dict[str, Any], bytes, None]

if sys.byteorder != "little":
    raise ImportError("the frames' numbers are little-endian, and so must the machine's be")


class Kind(enum.IntEnum):
    """What a frame is about. Below 64 the server sends it, from there on the worker; `END` and `CREDIT` go both ways."""

    HELLO = 1
    LOAD = 2
    UNLOAD = 3
    PREDICT = 4
    STREAM = 5
    CALL = 6
    ITEM = 7
    END = 8
    CREDIT = 9
    CANCEL = 10
    PING = 11
    STOP = 12
    SCRAPE = 13
    READY = 64
    LOADED = 65
    DONE = 66
    ANSWER = 67
    REPLY = 68
    ERROR = 69
    YIELDED = 70
    PONG = 71
    METRICS = 72
    EXPOSITION = 73


class FrameError(Exception):
    """Bytes that are no frame: the two ends do not speak the same protocol."""


class Header(NamedTuple):
    """The fixed part of a frame."""

    kind: int
    id: int
    head: int
    tail: int


def read_header(buffer: Buffer, offset: int = 0) -> Header:
    """Reads the `HEADER_BYTES` at `offset`."""
    kind, head, id, tail = _HEADER.unpack_from(buffer, offset)
    if head > MAX_HEAD or tail > MAX_TAIL:
        raise FrameError(f"a frame of kind {kind} declares a head of {head} and a tail of {tail} bytes")
    return Header(kind, id, head, tail)


def read_head(text: Buffer) -> Dict[str, Any]:
    """Reads a head."""
    if not text:
        return {}
    try:
        decoded = str(text, "utf-8")
        head, end = _raw_decode(decoded)
    except ValueError as error:
        raise FrameError(f"a head is not JSON: {error}") from None
    if type(head) is not dict or end != len(decoded):
        raise FrameError("a head is no JSON object")
    return head


#: What `json.loads` does after it has looked for blanks and other encodings, of which heads have none.
_raw_decode = json.JSONDecoder().raw_decode


def write_frame(kind: int, id: int = 0, head: Head = None, tail: Tuple[Buffer, ...] = ()) -> Tuple[List[Buffer], int]:
    """Returns the parts of a frame, in order, to be sent one after the other, and how long they are in all."""
    text = head if type(head) is bytes else b"" if head is None else write_json(head)
    size = sum(map(len, tail))
    if len(text) > MAX_HEAD:
        raise FrameError(f"names and parameters take {len(text)} bytes, more than {MAX_HEAD}")
    if size > MAX_TAIL:
        raise FrameError(f"the tensors take {size} bytes, more than {MAX_TAIL}")
    return [_HEADER.pack(kind, len(text), id, size) + text, *tail], HEADER_BYTES + len(text) + size


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_json(head: Any) -> bytes:
    """Returns compact JSON; numbers that JSON lacks become null."""
    try:
        return _encoder.encode(head).encode()
    except (TypeError, ValueError):
        from .._model import jsonable  # parameters may hold anything

        return _encoder.encode(jsonable(head)).encode("utf-8", "replace")


def read_request(head: Dict[str, Any], tail: Buffer) -> Any:
    """Returns the `InferenceRequest` of a frame. Its tensors lie over `tail`, which should be a `bytearray`."""
    inputs = []
    offset = 0
    view = memoryview(tail)
    try:
        for tensor in head["inputs"]:
            end = offset + tensor["size"]
            if end > len(view):
                raise FrameError(f"input '{tensor['name']}' ends {end - len(view)} bytes behind its frame")
            elements = _read_elements(tensor, view[offset:end])
            offset = _aligned(end)
            name, datatype = tensor["name"], tensor["datatype"]
            inputs.append(tensor_input(name, datatype, tensor["shape"], tensor.get("parameters"), elements))
        outputs = head.get("outputs")
        wanted = outputs and [requested_output(output["name"], output.get("parameters")) for output in outputs]
        parameters, headers = head.get("parameters"), head.get("headers")
        if headers is not None:
            parameters = {**(parameters or {}), "headers": headers}
        return inference_request(head.get("id"), parameters, inputs, wanted or None)
    except (KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"the head of a request is wrong: {error!r}") from error


def _read_elements(tensor: Dict[str, Any], buffer: memoryview) -> Elements:
    datatype = tensor["datatype"]
    if datatype != "BYTES":
        return FixedElements(datatype, buffer)
    split = 4 * (tensor["count"] + 1)
    if split > len(buffer):
        raise FrameError(f"input '{tensor['name']}' is shorter than its own offsets")
    return BytesElements(buffer[split:], buffer[:split].cast("I"), bool(tensor.get("text")))


def write_response(response: Any) -> Tuple[bytes, Tuple[Buffer, ...]]:
    """Returns head and tail of an `InferenceResponse`.

    Raises `TensorError` when an output's data is no tensor of its datatype.
    """
    outputs = []
    tail: List[Buffer] = []
    for output in wire_outputs(response):
        elements = output.elements
        buffer = elements.buffer
        size = buffer.nbytes
        if isinstance(elements, BytesElements):
            offsets = elements.offsets.cast("B")
            size += offsets.nbytes
            tail.append(offsets)
        outputs.append(_write_tensor(output, size))
        tail.append(buffer)
        padding = -size % _ALIGNMENT
        if padding:
            tail.append(_PADDING[:padding])
    text = b'{"outputs":[' + b",".join(outputs) + b"]"
    parameters = wire_parameters(response.parameters)
    if parameters:
        headers = parameters.pop("headers", None)
        if headers:
            text += b',"headers":' + write_json(headers)
        if parameters:
            text += b',"parameters":' + write_json(parameters)
    return text + b"}", tuple(tail)


def _write_tensor(output: WireTensor, size: int) -> bytes:
    """Returns how a head describes an output of `size` bytes."""
    name, datatype, shape, parameters, elements = output
    content_type = parameters.get("content_type")
    if datatype != "BYTES" and (not parameters or (len(parameters) == 1 and type(content_type) is str)):
        return _write_plain_tensor(name, datatype, tuple(shape), content_type, size)
    tensor: Dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if parameters:
        tensor["parameters"] = parameters
    if isinstance(elements, BytesElements):
        tensor["count"] = len(elements)
        if elements.text:
            tensor["text"] = True
    tensor["size"] = size
    return write_json(tensor)


@lru_cache(maxsize=256)
def _write_plain_tensor(name: str, datatype: str, shape: Tuple[int, ...], content_type: Optional[str], size: int) -> bytes:
    """The same for the tensors of most models, which are described alike again and again."""
    parameters = {} if content_type is None else {"parameters": {"content_type": content_type}}
    return write_json({"name": name, "datatype": datatype, "shape": shape, **parameters, "size": size})


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class FrameReader:
    """Cuts a stream of bytes into frames.

    Whoever receives asks `room()` for memory, writes to its beginning, tells `filled()` how much, and gets the frames that are
    whole now. The tail of a large frame is received where it will be read, so that it is never copied.
    """

    #: Frames up to this size are cut out of one buffer that is used again and again.
    _SMALL = 256 << 10

    def __init__(self) -> None:
        self._buffer = bytearray(self._SMALL)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        #: Header and head of a frame whose tail arrives in `_tail`.
        self._large: Optional[Tuple[Header, Dict[str, Any]]] = None
        self._tail = bytearray()
        self._tail_view = memoryview(self._tail)
        self._tail_end = 0

    @property
    def is_inside(self) -> bool:
        """Tells whether it is inside a large frame."""
        return self._large is not None

    def room(self) -> memoryview:
        """Returns memory for what arrives next; never empty."""
        if self._large is not None:
            return self._tail_view[self._tail_end :]
        return self._view[self._end :]

    def filled(self, size: int) -> Iterator[Tuple[Header, Dict[str, Any], Buffer]]:
        """Takes over `size` bytes and yields header, head and tail of each frame that is whole."""
        if self._large is not None:
            self._tail_end += size
            if self._tail_end == len(self._tail):
                header, head = self._large
                tail = self._tail
                self._large = None
                self._tail = bytearray()
                self._tail_view = memoryview(self._tail)
                yield header, head, tail
            return
        self._end += size
        while self._end - self._start >= HEADER_BYTES:
            header = read_header(self._view, self._start)
            head_start = self._start + HEADER_BYTES
            head_end = head_start + header.head
            tail_end = head_end + header.tail
            if tail_end <= self._end:
                self._start = tail_end
                head = read_head(self._view[head_start:head_end])
                yield header, head, bytearray(self._view[head_end:tail_end]) if header.tail else b""
                continue
            if tail_end - self._start <= self._SMALL:
                break
            if head_end > self._end:
                self._grow(head_end - self._start)
                break
            self._begin_tail(header, head_start, head_end)
            return
        self._make_room()

    def _begin_tail(self, header: Header, head_start: int, head_end: int) -> None:
        """Goes on in memory of the tail's own."""
        self._large = header, read_head(self._view[head_start:head_end])
        self._tail = bytearray(header.tail)
        self._tail_view = memoryview(self._tail)
        self._tail_end = self._end - head_end
        self._tail_view[: self._tail_end] = self._view[head_end : self._end]
        self._start = self._end = 0
        if len(self._buffer) > self._SMALL:
            self._replace(bytearray(self._SMALL))

    def _make_room(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer) or len(self._buffer) - self._start < self._SMALL // 2:
            left = bytes(self._view[self._start : self._end])
            self._view[: len(left)] = left
            self._start, self._end = 0, len(left)

    def _grow(self, size: int) -> None:
        """Makes the buffer hold a head that is longer than usual."""
        if size > len(self._buffer):
            left = self._view[self._start : self._end]
            buffer = bytearray(size)
            buffer[: len(left)] = left
            self._start, self._end = 0, len(left)
            self._replace(buffer)

    def _replace(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
