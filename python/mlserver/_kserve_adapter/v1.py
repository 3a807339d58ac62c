"""Bodies of V1: reads requests, and writes replies."""

import dataclasses
import datetime
import enum
import json
import re
import uuid
from typing import Any, AsyncGenerator, Callable, Dict, Iterable, NamedTuple, Optional, Tuple, Union

from .._dump import jsonable
from .._replies import Pairs, Reply, ReplyInstead, StreamedReply
from .._text import TextError, read_json
from .._worker.failures import is_http_exception
from ..errors import MLServerError
from .failures import translated
from .tensors import output_of

_JSON: Pairs = [("content-type", "application/json")]


#: The media types of bodies that are JSON and do not say so: the last one is curl's default.
_JSON_TYPES = ("application/octet-stream", "application/x-www-form-urlencoded")


#: Half of a character, which JSON can escape and UTF-8 cannot encode.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

#: The attributes that make a request of V1 a CloudEvent in binary mode, and the media types of its data that must be JSON.
_EVENT_JSON_TYPES = ("application/json", "application/cloudevents+json")
_EVENT = ("ce-specversion", "ce-id", "ce-source", "ce-type")


#: Headers of a predictor's response that concern only its own connection and body.
FRAMING = (
    "connection",
    "content-encoding",
    "content-length",
    "date",
    "inference-header-content-length",
    "keep-alive",
    "server",
    "transfer-encoding",
)


#: The response to a request of V1.
AnyReply = Union[Reply, StreamedReply]


class V1Handler(NamedTuple):
    """A route of V1. Unlike a custom handler, it gets the body as it is, and has no declared arguments."""

    name: str
    path: str
    #: "predict", "explain", or "ready" for the question whether the model is ready.
    v1: str
    #: Called with the head of the `call` frame and its body.
    respond: Callable[[Tuple[Dict[str, Any], Any]], Any]
    is_async: bool
    method: str = "POST"
    openai: Optional[str] = None


def read_body(head: Dict[str, Any], content: Any) -> Tuple[Any, Dict[str, str], str]:
    """Returns body and headers of a request of V1, and "predict" or "explain"."""
    headers: Dict[str, str] = dict(head["headers"])
    verb = "explain" if head["handler"] == "v1:explain" else "predict"
    is_event = "ce-specversion" in headers and all(name in headers for name in _EVENT)
    if not (is_event or _is_json(headers.get("content-type", ""))):
        return bytes(content), headers, verb
    try:
        body = read_json(content, _refuse)
        if _SURROGATE.search(content) is not None:
            # Raises an error, unless all of them are pairs. The answer could not have them.
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        if is_event and isinstance(error, (json.JSONDecodeError, TextError)):
            declared = headers.get("ce-content-type") or headers.get("content-type", "")
            if declared.partition(";")[0].strip().lower() in _EVENT_JSON_TYPES:
                raise MLServerError(f"Failed to decode or parse binary json cloudevent: {error}", 400) from None
            # Events may have data of any kind.
            return bytes(content), headers, verb
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise MLServerError(f"Unrecognized request format: {reason}", 400) from None
    return body, headers, verb


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _is_json(content_type: str) -> bool:
    """Returns whether a body of V1 is read as JSON: also `application/octet-stream`, as in KServe."""
    if not content_type or content_type == "application/json":
        return True
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json")) or media in _JSON_TYPES


_encoder = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=lambda value: _plain(value)
)


def _plain(value: Any) -> Any:
    """Returns a value that JSON has for one of NumPy or pandas, for a response of V2, or for what orjson writes, too."""
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if not name.startswith("_")}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    if hasattr(value, "to_rest"):
        return _rest(value)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def _rest(response: Any) -> Any:
    """Returns a response of V2 as JSON; FP16 as numbers."""
    found = {"id": response.id, "model_name": response.model_name, "model_version": response.model_version}
    tensors = []
    for tensor in response.outputs:
        output = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        data = tensor.data if getattr(tensor, "_raw_data", None) is None else output_of(tensor).data.root
        tensors.append({**output, "data": data})
    return {**found, "outputs": tensors}


def reply(result: Any, response_headers: Optional[Dict[str, str]]) -> Reply:
    if isinstance(result, (bytes, bytearray, str)):
        content = result.encode() if isinstance(result, str) else bytes(result)
        return Reply(200, sent_headers(response_headers or {}, FRAMING), content)
    if not response_headers:
        return Reply(200, _JSON, to_json(result))
    return Reply(200, sent_headers(response_headers, ("content-type", *FRAMING)) + _JSON, to_json(result))


def sent_headers(headers: Dict[str, Any], dropped: Iterable[str]) -> Pairs:
    """Returns headers of a response as text. Those that describe a predictor's connection or body are dropped."""
    return [(str(name), str(value)) for name, value in headers.items() if str(name).lower() not in dropped]


def to_json(value: Any) -> bytes:
    """Returns compact JSON. Numbers that JSON lacks become null, as in KServe.

    Raises `TypeError` for values that JSON lacks, and `ValueError` for a value that contains itself.
    """
    try:
        return _encoder.encode(value).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the result has text that is not Unicode: {error}") from None
    except RecursionError:
        raise ValueError("the result is nested too deeply") from None
    except ValueError as error:
        if "Circular" in str(error):
            raise ValueError("the result contains itself") from None
    return _encoder.encode(jsonable(json.loads(_with_nan.encode(value)))).encode()


_with_nan = json.JSONEncoder(default=lambda value: _plain(value))


def chunk_of(item: Any) -> bytes:
    """Returns an item of a stream: text as it is, and anything else as an event, so that clients see where it ends."""
    if isinstance(item, str):
        return item.encode()
    return bytes(item) if isinstance(item, (bytes, bytearray, memoryview)) else b"data: %b\n\n" % to_json(item)


def streamed_reply(items: "AsyncGenerator[Any, None]", response_headers: Optional[Dict[str, str]]) -> StreamedReply:
    headers = sent_headers(response_headers or {}, ("content-type", *FRAMING))
    return StreamedReply(200, [("content-type", "text/event-stream"), *headers], _pieces(items))


async def _pieces(items: "AsyncGenerator[Any, None]") -> "AsyncGenerator[bytes, None]":
    """Yields the parts of a streamed answer. An exception before the first of them is answered like one of a whole answer."""
    is_first = True
    try:
        async for item in items:
            yield chunk_of(item)
            is_first = False
    except Exception as error:
        if is_first:
            raise ReplyInstead(failed_reply(error)) from error
        raise
    finally:
        await items.aclose()


def failed_reply(error: Exception) -> Reply:
    """Returns the reply for an exception. Raises those that the server should log, with KServe's words."""
    if is_http_exception(error):
        headers = [(str(name), str(value)) for name, value in (getattr(error, "headers", None) or {}).items()]
        body = to_json({"detail": jsonable(getattr(error, "detail", None))})
        return Reply(int(error.status_code), headers + _JSON, body)  # type: ignore[attr-defined]
    found = translated(error)
    if isinstance(found, MLServerError) and found.status_code != 500:
        return Reply(found.status_code, _JSON, to_json({"error": str(found)}))
    # Raised, so that the server logs it.
    if found is error:
        raise found
    raise found from error
