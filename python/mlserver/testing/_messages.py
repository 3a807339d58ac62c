"""Requests and responses in the frames of the worker, as the server writes and reads them."""

import json
import math
import re
import uuid
from contextlib import suppress
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from .._dump import dumped_json, to_json
from .._payload import parameters as wire_to_parameters
from .._payload import tensor_output, wire_parameters
from .._tensor import BytesElements, DoubleElements, FixedElements, TensorError, pack, resolved_shape
from .._validate import ValidationError
from .._worker.frames import FrameKind, write_json
from ..rest.requests import Headers
from ..types import InferenceRequest, InferenceResponse, RequestInput, TensorData
from ._errors import InferenceFailed, LoadFailed

_MAX_HEADERS = 1024

_FLOATS = frozenset(("FP16", "BF16", "FP32", "FP64"))
_NARROW_FLOATS = _FLOATS - {"FP64"}
_HEADER_NAME = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile("[\t\x20-\x7e\x80-\xff]*")

#: A request: an `InferenceRequest`, what a client sends as JSON, or the inputs alone.
RequestLike = Union[InferenceRequest, RequestInput, Mapping[str, Any], Iterable[Any]]


class Response(NamedTuple):
    """The response of a custom handler."""

    status: int
    #: By name, case-insensitive.
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """Returns the body, parsed as JSON."""
        return json.loads(self.body)


class Frame(NamedTuple):
    """A frame from the service."""

    kind: int
    head: Dict[str, Any]
    tail: Any


class Route:
    """The route of a custom handler."""

    _CONVERTERS = {
        "": "[^/]+",
        "str": "[^/]+",
        "int": "[0-9]+",
        "float": r"[0-9]+(?:\.[0-9]+)?",
        "uuid": "[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}",
        "path": ".*",
    }
    _PARAMETER = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)(?::([a-zA-Z_][a-zA-Z0-9_]*))?\}")

    def __init__(self, name: str, path: str, method: str, **_: Any) -> None:
        self.name, self.path, self.method = name, path, method
        if not path.startswith("/"):
            raise LoadFailed(500, f"handler `{name}` has the invalid path `{path}`: it does not begin with `/`")
        pattern, end = "", 0
        for parameter in self._PARAMETER.finditer(path):
            converter = self._CONVERTERS.get(parameter[2] or "")
            if converter is None or f"(?P<{parameter[1]}>" in pattern:
                raise LoadFailed(500, f"handler `{name}` has the invalid path `{path}`: parameter `{parameter[0]}`")
            pattern += f"{re.escape(path[end : parameter.start()])}(?P<{parameter[1]}>{converter})"
            end = parameter.end()
        self._pattern = re.compile(pattern + re.escape(path[end:]))

    def match(self, path: str) -> Optional[Dict[str, str]]:
        """Returns the parameters in a path, or `None` if the route has another path."""
        found = self._pattern.fullmatch(path)
        return None if found is None else found.groupdict()


def as_request(
    request: RequestLike, headers: Optional[Mapping[str, str]], request_id: Optional[str] = None
) -> InferenceRequest:
    """Returns a request with an id. Raises `InferenceFailed` if it is invalid."""
    if isinstance(request, InferenceRequest):
        found = request.model_copy()
    else:
        body = request if isinstance(request, Mapping) else {"inputs": _inputs(request)}
        try:
            found = InferenceRequest.model_validate(body)
        except ValidationError as error:
            raise InferenceFailed(422, str(error)) from None
    found.id = request_id or found.id or str(uuid.uuid4())
    if headers:
        lower = {name.lower(): value for name, value in headers.items()}
        found.parameters = wire_to_parameters({**wire_parameters(found.parameters), "headers": lower})
    return found


def _inputs(request: Any) -> List[Any]:
    inputs = [request] if isinstance(request, RequestInput) else list(request)
    if not all(isinstance(each, (RequestInput, Mapping)) for each in inputs):
        raise TypeError("expected an InferenceRequest, a dictionary with `inputs`, or a list of RequestInput")
    return inputs


def stream_frames(
    first: Optional[InferenceRequest],
    others: Iterator[RequestLike],
    headers: Optional[Mapping[str, str]],
    request_id: Optional[str],
) -> Iterator[Tuple[FrameKind, Dict[str, Any], Tuple[Any, ...]]]:
    """Yields the frames of the requests of a stream, and their end."""
    if first is not None:
        yield (FrameKind.ITEM, *write_request(first))
    for request in others:
        yield (FrameKind.ITEM, *write_request(as_request(request, headers, request_id)))
    yield FrameKind.END, {}, ()


def write_request(request: InferenceRequest) -> Tuple[Dict[str, Any], Tuple[Any, ...]]:
    """Returns head and tail of a request. Raises `InferenceFailed` if its data is invalid."""
    head: Dict[str, Any] = {"id": request.id, "inputs": []}
    tail: List[Any] = []
    for tensor in request.inputs:
        try:
            described, parts = _write_input(tensor)
        except (TensorError, TypeError) as error:
            raise InferenceFailed(400, f"input '{tensor.name}': {error}") from None
        head["inputs"].append(described)
        size = sum(map(len, parts))
        described["size"] = size
        tail += [*parts, bytes(-size % 8)]
        sent = described.get("sent")
        if sent is not None:
            described["sent"] = len(sent)
            tail += [sent, bytes(-len(sent) % 8)]
    values = wire_parameters(request.parameters)
    headers = values.pop("headers", None)
    if headers:
        head["headers"] = headers
    if values:
        head["parameters"] = values
    if request.outputs is not None:
        head["outputs"] = [_requested(output) for output in request.outputs]
    return json.loads(write_json(head)), tuple(tail)


def _requested(output: Any) -> Dict[str, Any]:
    parameters = {} if output.parameters is None else {"parameters": wire_parameters(output.parameters)}
    return {"name": output.name, **parameters}


def _write_input(tensor: RequestInput) -> Tuple[Dict[str, Any], List[Any]]:
    """Returns the description of an input, without its size, and its bytes, as the server sends what it reads from JSON."""
    raw: Any = tensor.data.raw if isinstance(tensor.data, TensorData) else tensor.data
    if isinstance(tensor.data, TensorData) and (tensor.data.nested or tensor.data.sent is not None):
        raw = tensor.data.root
    if hasattr(raw, "tolist") and not isinstance(raw, (FixedElements, BytesElements, memoryview)):
        raw = raw.tolist()
    datatype: Any = getattr(tensor.datatype, "value", tensor.datatype)
    shape = list(tensor.shape)
    described: Dict[str, Any] = {"name": tensor.name, "datatype": datatype, "shape": shape}
    if tensor.parameters is not None:
        described["parameters"] = wire_parameters(tensor.parameters)
    if shape and min(shape) < 0:
        described["sent_shape"] = shape
    if isinstance(raw, (FixedElements, BytesElements)):
        elements: Any = pack(raw, datatype)
        described["shape"] = resolved_shape(shape, len(elements)) or shape
        return described, _elements(described, elements, getattr(raw, "text", False))
    leaves, form = list(_leaves(raw)), _form(raw)
    try:
        if not form or not all(_is_element(leaf, datatype) for leaf in leaves):
            raise TensorError("only JSON can hold it")
        elements = _with_doubles(leaves, datatype) if datatype in _NARROW_FLOATS else pack(raw, datatype)
        resolved = resolved_shape(shape, len(elements))
        if resolved is None and (len(form) > 1 or min(shape, default=0) < 0):
            raise TensorError("only JSON can hold its form")
    except TensorError:
        described["shape"] = [len(leaves)] if "sent_shape" in described else shape
        described["json"] = True
        return described, [to_json(dumped_json(raw)).encode()]
    described["shape"] = shape if resolved is None else resolved
    if len(form) > 1 and form == resolved:
        described["nested"] = True
    elif len(form) > 1 or not all(_is_plain(leaf, datatype) for leaf in leaves):
        described["sent"] = to_json(dumped_json(raw)).encode()
    return described, _elements(described, elements, bool(leaves) and all(isinstance(leaf, str) for leaf in leaves))


def _elements(described: Dict[str, Any], elements: Any, is_text: bool) -> List[Any]:
    """Returns the bytes of elements, and describes them."""
    if isinstance(elements, DoubleElements):
        described["doubles"] = True
    if isinstance(elements, FixedElements):
        return [elements.buffer.tobytes()]
    described["count"] = len(elements)
    if is_text:
        described["text"] = True
    return [elements.offsets.tobytes(), elements.buffer.tobytes()]


def _with_doubles(leaves: List[Any], datatype: str) -> DoubleElements:
    """Returns floats in double precision. Raises `TensorError` if one is beyond the range of its datatype."""
    doubles = pack(leaves, "FP64")
    elements = DoubleElements(datatype, doubles.buffer)
    pairs = zip(elements.rounded().tolist(), doubles.tolist())
    if any(math.isinf(rounded) and math.isfinite(double) for rounded, double in pairs):
        raise TensorError("a number is out of range")
    return elements


def _is_plain(leaf: Any, datatype: str) -> bool:
    """Returns whether an element has the JSON type of its datatype."""
    if datatype == "BYTES":
        return True
    return isinstance(leaf, bool) if datatype == "BOOL" else isinstance(leaf, (int, float))


def _is_element(leaf: Any, datatype: str) -> bool:
    """Returns whether JSON data of this datatype may contain a value."""
    if datatype == "BYTES":
        return isinstance(leaf, (str, bytes, bytearray, memoryview))
    if isinstance(leaf, bool) or datatype == "BOOL":
        return datatype == "BOOL" and leaf in (0, 1)
    if isinstance(leaf, (int, float)):
        return True
    return datatype in _FLOATS and (leaf is None or leaf in ("NaN", "Infinity", "-Infinity"))


def _form(data: Any) -> Optional[List[int]]:
    """Returns the sizes of nested lists, or `None` if they differ within a level. A single value has no sizes."""
    if not isinstance(data, (list, tuple)):
        return []
    forms = [_form(each) for each in data]
    if any(form is None or form != forms[0] for form in forms):
        return None
    return [len(data), *((forms[0] or []) if forms else [])]


def _leaves(data: Any) -> Iterator[Any]:
    """Yields the elements of nested lists."""
    if hasattr(data, "tolist") and not isinstance(data, memoryview):
        data = data.tolist()
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _leaves(each)
    else:
        yield data


def read_answer(
    frame: Frame, model_name: str, model_version: Optional[str], request_id: Optional[str]
) -> InferenceResponse:
    """Returns the response in a frame. Raises `InferenceFailed` if the server would not send it."""
    outputs = []
    view, offset = memoryview(frame.tail), 0
    for tensor in frame.head["outputs"]:
        end = offset + tensor["size"]
        data = _read_output(tensor, view[offset:end])
        offset = end + -end % 8
        if "sent" in tensor:
            end = offset + tensor["sent"]
            data = json.loads(bytes(view[offset:end]))
            offset = end + -end % 8
        outputs.append(
            tensor_output(tensor["name"], tensor["datatype"], tensor["shape"], tensor.get("parameters"), data)
        )
    headers = frame.head.get("headers", {})
    _check_header_count(headers)
    values = {**frame.head.get("parameters", {}), **({"headers": headers} if headers else {})}
    return InferenceResponse(
        model_name=frame.head.get("model_name") or model_name,
        model_version=frame.head.get("model_version", model_version),
        id=request_id,
        parameters=wire_to_parameters(values) if values else None,
        outputs=outputs,
    )


def _read_output(tensor: Dict[str, Any], buffer: memoryview) -> Any:
    """Returns the data of an output."""
    if tensor.get("json"):
        return json.loads(bytes(buffer))
    elements: Union[FixedElements, BytesElements]
    if tensor["datatype"] == "BYTES":
        split = 4 * (tensor["count"] + 1)
        elements = BytesElements(buffer[split:], buffer[:split].cast("I"), text=False)
        with suppress(UnicodeDecodeError):
            text = BytesElements(elements.buffer, elements.offsets, text=True)
            text.tolist()
            elements = text
    else:
        elements = FixedElements(tensor["datatype"], buffer)
    return TensorData(elements, resolved_shape(tensor["shape"], len(elements)) if tensor.get("nested") else None)


def read_reply(frame: Frame) -> Response:
    """Returns the response in a frame. Raises `InferenceFailed` if the server would not send it."""
    status, pairs = frame.head["status"], [(name, value) for name, value in frame.head["headers"]]
    if type(status) is not int or not 200 <= status <= 999:
        raise InferenceFailed(500, f"the handler returned status {status}, expected 200 to 999")
    _check_header_count(pairs)
    for name, value in pairs:
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InferenceFailed(500, f"the handler returned an invalid header: `{name}`")
    return Response(status, Headers(pairs), bytes(frame.tail))


def _check_header_count(headers: Any) -> None:
    if len(headers) > _MAX_HEADERS:
        message = f"the model returned {len(headers)} headers, more than the limit of {_MAX_HEADERS}"
        raise InferenceFailed(500, message)
