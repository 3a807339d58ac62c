"""The encoding of frames; see `docs/worker-protocol.md`. Independent of sockets."""

import enum
import json
import struct
import sys
from functools import lru_cache
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .._payload import (
    WireTensor,
    inference_request,
    plain_input,
    requested_output,
    tensor_input,
    wire_outputs,
    wire_parameters,
)
from .._tensor import BytesElements, DoubleElements, FixedElements
from ..types.dataplane import flat_data

PROTOCOL = 2

MAX_HEAD = 16 << 20
MAX_TAIL = 4 << 30

#: The most calls that may be open at once. The low bits of an id are the call's slot.
SLOTS = 256

_HEADER = struct.Struct("<B3xIQQ")
HEADER_BYTES = _HEADER.size

_ALIGNMENT = 8
_PADDING = bytes(_ALIGNMENT)

Buffer = Union[bytes, bytearray, memoryview]

#: A head, or its JSON, or `None` for an empty head.
Head = Union[Dict[str, Any], bytes, None]

if sys.byteorder != "little":
    raise ImportError("the worker needs a little-endian machine")


class FrameKind(enum.IntEnum):
    """The kinds of frames. The server sends those below 64, the worker the others; both send `END` and `CREDIT`."""

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
    STEP_ANSWER = 14
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
    STEP = 74
    CHUNK = 75


class FrameError(Exception):
    """Raised for invalid frames: the two ends do not use the same protocol."""


class Header(NamedTuple):
    """The header of a frame, which has a fixed size."""

    kind: int
    id: int
    head: int
    tail: int


def read_header(buffer: Buffer, offset: int = 0) -> Header:
    """Reads the `HEADER_BYTES` at `offset`."""
    kind, head, id, tail = _HEADER.unpack_from(buffer, offset)
    if head > MAX_HEAD or tail > MAX_TAIL:
        raise FrameError(f"a frame of kind {kind} has a head of {head} and a tail of {tail} bytes, more than allowed")
    # Half the time of `Header(…)`.
    return tuple.__new__(Header, (kind, id, head, tail))


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
        raise FrameError("a head is not a JSON object")
    return head


#: Does what `json.loads` does, without its search for whitespace and other encodings, which heads do not have.
_raw_decode = json.JSONDecoder().raw_decode


def write_frame(kind: int, id: int = 0, head: Head = None, tail: Tuple[Buffer, ...] = ()) -> Tuple[List[Buffer], int]:
    """Returns the buffers of a frame, in the order in which to send them, and their total size."""
    text = head if type(head) is bytes else b"" if head is None else write_json(head)
    size = sum(map(len, tail))
    if len(text) > MAX_HEAD:
        raise FrameError(f"names and parameters of {len(text)} bytes exceed the limit of {MAX_HEAD}")
    if size > MAX_TAIL:
        raise FrameError(f"tensors of {size} bytes exceed the limit of {MAX_TAIL}")
    return [_HEADER.pack(kind, len(text), id, size) + text, *tail], HEADER_BYTES + len(text) + size


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_json(head: Any) -> bytes:
    """Returns compact JSON. NaN and infinite numbers become null."""
    try:
        return _encoder.encode(head).encode()
    except (TypeError, ValueError):
        from .._dump import dumped_json  # rarely needed: parameters may contain any value

        return _encoder.encode(dumped_json(head)).encode("utf-8", "replace")


def read_request(head: Dict[str, Any], tail: Buffer) -> Any:
    """Returns the `InferenceRequest` of a frame. Its tensors are views of `tail`, which should be a `bytearray`."""
    try:
        inputs = read_tensors(head, tail)
        outputs = head.get("outputs")
        requested = outputs and [requested_output(output["name"], output.get("parameters")) for output in outputs]
        parameters, headers = head.get("parameters"), head.get("headers")
        if headers is not None:
            parameters = {**parameters, "headers": headers} if parameters else {"headers": headers}
        return inference_request(head.get("id"), parameters, inputs, requested, head.get("grpc", False))
    except (KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"invalid head of a request: {error!r}") from error


def read_tensors(head: Dict[str, Any], tail: Buffer) -> List[Any]:
    """Returns the tensors in the `inputs` of a head."""
    inputs = []
    offset = 0
    view = memoryview(tail)
    for tensor in head["inputs"]:
        end = offset + tensor["size"]
        if end > len(view):
            raise FrameError(f"input '{tensor['name']}' exceeds its frame by {end - len(view)} bytes")
        if len(tensor) == _PLAIN_FIELDS and tensor["datatype"] != "BYTES":
            data = flat_data(FixedElements(tensor["datatype"], view[offset:end]))
            inputs.append(plain_input(tensor["name"], tensor["datatype"], tensor["shape"], None, data))
            offset = _aligned(end)
            continue
        elements = _read_elements(tensor, view[offset:end])
        offset = _aligned(end)
        sent = None
        if "sent" in tensor:
            sent = bytes(view[offset : offset + tensor["sent"]])
            offset = _aligned(offset + tensor["sent"])
        name, datatype, sent_shape = tensor["name"], tensor["datatype"], tensor.get("sent_shape")
        parameters, nested = tensor.get("parameters"), tensor.get("nested", False)
        inputs.append(tensor_input(name, datatype, tensor["shape"], parameters, elements, nested, sent_shape, sent))
    return inputs


#: How many fields a tensor has at least: its name, datatype, shape and size. Numbers that have no others are read quickly.
_PLAIN_FIELDS = 4


def _read_elements(tensor: Dict[str, Any], buffer: memoryview) -> Any:
    datatype = tensor["datatype"]
    if tensor.get("json"):
        return json.loads(bytes(buffer))
    if datatype != "BYTES":
        return DoubleElements(datatype, buffer) if tensor.get("doubles") else FixedElements(datatype, buffer)
    split = 4 * (tensor["count"] + 1)
    if split > len(buffer):
        raise FrameError(f"input '{tensor['name']}' is shorter than its own offsets")
    return BytesElements(buffer[split:], buffer[:split].cast("I"), bool(tensor.get("text")))


def write_response(
    response: Any, own_name: str = "", own_version: Optional[str] = None
) -> Tuple[bytes, Tuple[Buffer, ...]]:
    """Returns head and tail of an `InferenceResponse` of the model with a name and a version.

    Raises `TensorError` if the data of an output cannot be sent in any form.
    """
    return write_outputs(response, wire_outputs(response), own_name, own_version)


def write_outputs(
    response: Any, wired: List[WireTensor], own_name: str, own_version: Optional[str]
) -> Tuple[bytes, Tuple[Buffer, ...]]:
    """Returns head and tail of a response whose outputs are ready to be sent."""
    outputs, tail = _write_tensors(wired)
    text = b'{"outputs":[' + b",".join(outputs) + b"]"
    if response.model_name != own_name and type(response.model_name) is str:
        text += b',"model_name":' + write_json(response.model_name)
    if own_version is None and type(response.model_version) is str:
        text += b',"model_version":' + write_json(response.model_version)
    parameters = response.parameters
    if parameters is not None:
        parameters = wire_parameters(parameters)
    if parameters:
        headers = parameters.pop("headers", None)
        if headers:
            text += b',"headers":' + write_json(headers)
        if parameters:
            text += b',"parameters":' + write_json(parameters)
    return text + b"}", tail


def write_tensors(response: Any) -> Tuple[List[bytes], Tuple[Buffer, ...]]:
    """Returns the descriptions of the outputs of an `InferenceResponse` in a head, and their bytes."""
    return _write_tensors(wire_outputs(response))


def _write_tensors(wired: List[WireTensor]) -> Tuple[List[bytes], Tuple[Buffer, ...]]:
    outputs = []
    tail: List[Buffer] = []
    for output in wired:
        name, datatype, shape, parameters, (elements, nested, sent, _) = output
        size = 0
        if elements is not None:
            buffer = elements.buffer
            size = buffer.nbytes
            if isinstance(elements, BytesElements):
                offsets = elements.offsets.cast("B")
                size += offsets.nbytes
                tail.append(offsets)
            tail.append(buffer)
            if size % _ALIGNMENT:
                tail.append(_PADDING[: -size % _ALIGNMENT])
        if sent is not None:
            tail.append(sent)
            if len(sent) % _ALIGNMENT:
                tail.append(_PADDING[: -len(sent) % _ALIGNMENT])
        elif isinstance(elements, FixedElements):
            content_type = parameters.get("content_type") if parameters else None
            if parameters is None or (len(parameters) == 1 and type(content_type) is str):
                outputs.append(_write_plain_tensor(name, datatype, tuple(shape), nested, content_type, size))
                continue
        outputs.append(_write_tensor(output, size))
    return outputs, tuple(tail)


def _write_tensor(output: WireTensor, size: int) -> bytes:
    """Returns the description in a head of an output whose elements have `size` bytes."""
    name, datatype, shape, parameters, packed = output
    elements, nested, sent, reason = packed
    tensor: Dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if parameters is not None:
        tensor["parameters"] = parameters
    if nested:
        tensor["nested"] = True
    if elements is None:
        assert sent is not None
        tensor.update(json=True, reason=reason[:_MAX_REASON], size=len(sent))
        return write_json(tensor)
    if isinstance(elements, BytesElements):
        tensor["count"] = len(elements)
        if elements.text:
            tensor["text"] = True
    if sent is not None:
        tensor["sent"] = len(sent)
    tensor["size"] = size
    return write_json(tensor)


#: The most characters of a reason why data has no regular form.
_MAX_REASON = 1000


@lru_cache(maxsize=256)
def _write_plain_tensor(
    name: str, datatype: str, shape: Tuple[int, ...], nested: bool, content_type: Optional[str], size: int
) -> bytes:
    """Does the same for tensors of simple models, whose descriptions repeat and are therefore cached."""
    tensor: Dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if content_type is not None:
        tensor["parameters"] = {"content_type": content_type}
    if nested:
        tensor["nested"] = True
    return write_json({**tensor, "size": size})


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class FrameReader:
    """Splits a stream of bytes into frames.

    The receiver writes to the start of the memory that `room()` returns, and calls `filled()` with the number of bytes, which
    yields complete frames. The tail of a large frame is received into memory of its own, so that it is never copied.
    """

    #: Frames up to this size, in bytes, are read from one buffer, which is reused.
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
        """Whether the tail of a large frame is incomplete."""
        return self._large is not None

    def room(self) -> memoryview:
        """Returns memory for the next bytes; never empty."""
        if self._large is not None:
            return self._tail_view[self._tail_end :]
        return self._view[self._end :]

    def filled(self, size: int) -> Iterator[Tuple[Header, Dict[str, Any], Buffer]]:
        """Processes `size` received bytes, and yields header, head and tail of each complete frame."""
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
        """Allocates memory for the tail of a large frame, and continues there."""
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
        """Enlarges the buffer for a long head."""
        if size > len(self._buffer):
            left = self._view[self._start : self._end]
            buffer = bytearray(size)
            buffer[: len(left)] = left
            self._start, self._end = 0, len(left)
            self._replace(buffer)

    def _replace(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
