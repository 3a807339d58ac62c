"""Methods of models that answer OpenAI's API: their arguments, and their answers as its clients read them."""

import array
import base64
import inspect
import json
import time
from contextlib import suppress
from typing import Any, AsyncGenerator, Callable, Dict, List, NamedTuple, Optional, Tuple

from ._blocking import completed, is_async
from ._dump import jsonable, to_json
from ._replies import EVENT_HEADERS, Pairs, Reply, ReplyInstead, RunPlain, StreamedReply, close, iterate
from ._text import read_json
from .errors import MLServerError

__all__ = ["METHODS", "InvalidRequest", "OpenAIHandler", "handlers_of"]

#: The method of a model for each endpoint.
METHODS = {
    "chat_completions": "create_chat_completion",
    "completions": "create_completion",
    "embeddings": "create_embedding",
    "rerank": "create_rerank",
}

_JSON: Pairs = [("content-type", "application/json")]

_DONE = "[DONE]"

#: Counts of tokens beyond this are not those of a request.
_MAX_TOKENS = 1 << 53
#: The longest line of a stream of text that is read for the tokens of `usage`, in characters.
_MAX_LINE = 64 << 10


def handlers_of(instance: Any, run_plain: RunPlain) -> "List[OpenAIHandler]":
    """Returns the handlers of the methods that the class of a model has.

    What an instance has under these names is its own, unless its class has a function of the name.
    """
    found = []
    for api, name in METHODS.items():
        if callable(_static(type(instance), name)):
            found.append(OpenAIHandler(api, getattr(instance, name), run_plain))
    return found


def _static(cls: type, name: str) -> Any:
    function = inspect.getattr_static(cls, name, None)
    return function.__func__ if isinstance(function, (classmethod, staticmethod)) else function


class _Asked(NamedTuple):
    """A request, and what its answer needs of it."""

    api: str
    body: Dict[str, Any]
    id: str
    created: int
    #: Headers that the method sets for the answer.
    response: "ResponseContext"
    headers: Dict[str, str]

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True and self.api in ("chat_completions", "completions")


class ResponseContext:
    """The answer, as a method sees it in `context["response"]`."""

    def __init__(self) -> None:
        self.headers: Dict[str, str] = {}


class InvalidRequest(Exception):
    """Raised by `wrap` for a request that the method is not called with. `param` is the field, if the reason is one."""

    def __init__(self, message: str, param: Optional[str]) -> None:
        super().__init__(message)
        self.param = param

    def reply(self) -> Reply:
        """Returns the reply to the client."""
        error = {"message": str(self), "type": "invalid_request_error", "param": self.param, "code": None}
        return Reply(400, _JSON, _json({"error": error}))


class OpenAIHandler:
    """A method of a model that answers an endpoint, called with the request as a `dict`, or with what `wrap` makes of it."""

    v1: Optional[str] = None
    method = "POST"

    def __init__(
        self,
        api: str,
        function: Callable[..., Any],
        run_plain: RunPlain,
        wrap: Callable[[str, Dict[str, Any]], Any] = lambda _api, body: body,
        translate: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        """`wrap` may raise `InvalidRequest`. `translate` makes exceptions of another server those of this one."""
        self.openai: Optional[str] = api
        self.name = f"openai:{api}"
        #: With the prefix that the server has unless its settings say otherwise.
        self.path = f"/openai/v1/{api.replace('_', '/')}"
        self._api = api
        self._function = completed(function)
        self._options = _options(function)
        self._run_plain = run_plain
        self._wrap = wrap
        self._translate = translate
        self.is_async = is_async(function)

    def respond(self, call: Tuple[Dict[str, Any], Any]) -> Any:
        """Answers a call, with the head of its frame and its body. Returns a reply, or a coroutine that does.

        Raises what the method raises.
        """
        asked = _read(self._api, *call)
        try:
            request = self._wrap(self._api, asked.body)
            result = self._call(asked, request)
        except InvalidRequest as error:
            return _later(error.reply()) if self.is_async else error.reply()
        except Exception as error:
            return _replied_error(error, self._translate)
        return self._awaited(asked, result) if inspect.isawaitable(result) else self._answer(asked, result)

    async def _awaited(self, asked: _Asked, result: Any) -> Any:
        try:
            result = await result
        except Exception as error:
            return _replied_error(error, self._translate)
        reply = self._answer(asked, result)
        return await reply if inspect.isawaitable(reply) else reply

    async def _unasked(self, stream: Any) -> Any:
        with suppress(Exception):
            await close(stream)
        raise MLServerError(f"`{METHODS[self._api]}` returned a stream, which the request does not ask for", 500)

    def _call(self, asked: _Asked, request: Any) -> Any:
        given = {"raw_request": None, "context": {"headers": asked.headers, "response": asked.response}}
        options = {name: given[name] for name in self._options}
        return self._function(request, **options)

    def _answer(self, asked: _Asked, result: Any) -> Any:
        if hasattr(result, "__aiter__") or hasattr(result, "__next__"):
            if not asked.streams:
                return self._unasked(result)
            pieces = _Pieces(asked, self._translate)
            items = iterate(result, self._run_plain)
            return StreamedReply(200, EVENT_HEADERS + _headers(asked), pieces.of(items), pieces.usage)
        answer = _dumped(result)
        error = _error_of(result, answer)
        if error is not None:
            return error
        if not isinstance(answer, dict):
            raise TypeError(
                f"`{METHODS[self._api]}` returned a {type(result).__qualname__}, expected a dict or an object with `model_dump`"
            )
        answer = _completed(asked, answer, is_chunk=asked.streams)
        usage = _usage(answer)
        if asked.streams:
            body = _event(answer) + _event_of_text(_DONE)
            return Reply(200, EVENT_HEADERS + _headers(asked), body, usage)
        return Reply(200, _JSON + _headers(asked), _json(answer), usage)


async def _later(reply: Reply) -> Reply:
    return reply


def _options(function: Callable[..., Any]) -> List[str]:
    """Returns which of the optional arguments a method has."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    names = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    takes_all = any(each.kind == each.VAR_KEYWORD for each in parameters)
    return [name for name in ("raw_request", "context") if takes_all or name in names]


def _read(api: str, head: Dict[str, Any], content: Any) -> _Asked:
    """Reads a request. The server has checked the fields that it needs."""
    try:
        body = read_json(content)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise MLServerError(f"the body cannot be read as JSON: {reason}", 400) from None
    if not isinstance(body, dict):
        raise MLServerError("the body must be a JSON object", 400)
    headers = dict(head["headers"])
    return _Asked(api, body, headers.get("x-request-id", ""), int(time.time()), ResponseContext(), headers)


def _headers(asked: _Asked) -> Pairs:
    """Returns the headers that the method has set. Those of the body are the server's."""
    return [
        (str(name), str(value))
        for name, value in asked.response.headers.items()
        if str(name).lower() not in ("content-type", "content-length", "transfer-encoding")
    ]


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _json(value: Any) -> bytes:
    """Returns JSON, with `null` for numbers that JSON lacks."""
    return to_json(jsonable(value)).encode("utf-8", "replace")


def _event(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _event_of_text(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


# Errors


def _replied_error(error: Exception, translate: Callable[[Exception], Exception]) -> Reply:
    """Returns the reply that an exception has with it, as `OpenAIError` of KServe does. Raises other exceptions."""
    response = getattr(error, "response", None)
    if any(base.__name__ == "OpenAIError" for base in type(error).__mro__) and response is not None:
        if isinstance(response, str):
            # What KServe's server makes of it.
            fields = {"message": str(error), "type": type(error).__name__, "param": "", "code": "500"}
            return Reply(500, _JSON, _json({"error": fields}))
        found = _error_of(response, _dumped(response), _upstream_status(error))
        if found is not None:
            return found
        raise MLServerError(str(error), 500) from error
    raise translate(error)


def _upstream_status(error: Exception) -> Any:
    """Returns the status of the other server's response, if an error was raised because of it."""
    reason = error.__cause__ or error.__context__
    return getattr(getattr(reason, "response", None), "status_code", None)


def _error_of(value: Any, dumped: Any, status: Any = None) -> Optional[Reply]:
    """Returns the reply for an `ErrorResponse` or its dictionary, and `None` for other answers.

    `status` is that of the reply if `code` is not a status.
    """
    if not isinstance(dumped, dict):
        return None
    is_named = any(base.__name__ == "ErrorResponse" for base in type(value).__mro__)
    inner = dumped.get("error")
    others: Dict[str, Any] = {}
    if isinstance(inner, dict) and (is_named or len(dumped) == 1):
        fields = others = inner
    elif is_named or dumped.get("object") == "error":
        fields = dumped
    else:
        return None
    code = fields.get("code")
    given = {
        **others,
        "message": str(fields.get("message", "")),
        "type": fields.get("type"),
        "param": fields.get("param"),
        "code": None if code is None else str(code),
    }
    return Reply(_status(code) or _status(status) or 500, _JSON, _json({"error": given}))


def _status(code: Any) -> Optional[int]:
    """Returns the status that a code is, if it is that of an error."""
    with suppress(TypeError, ValueError):
        return int(code) if 400 <= int(code) <= 599 else None
    return None


# Whole answers and chunks

_OBJECTS = {
    "chat_completions": ("chatcmpl-", "chat.completion", "chat.completion.chunk"),
    "completions": ("cmpl-", "text_completion", "text_completion"),
}


def _completed(asked: _Asked, answer: Dict[str, Any], is_chunk: bool) -> Dict[str, Any]:
    """Returns an answer with the fields that its model has left out."""
    if asked.api == "embeddings":
        return _embeddings(asked, answer)
    if asked.api == "rerank":
        return _rerank(asked, answer)
    prefix, whole, chunk = _OBJECTS[asked.api]
    fields = {
        "id": prefix + asked.id,
        "object": chunk if is_chunk else whole,
        "created": asked.created,
        "model": asked.body["model"],
        **{name: value for name, value in answer.items() if value is not None or name not in _REQUIRED},
    }
    choices = fields.get("choices")
    if isinstance(choices, list):
        fields["choices"] = [_choice(asked, index, choice, is_chunk) for index, choice in enumerate(choices)]
    if is_chunk and fields["object"] == whole:
        fields["object"] = chunk
    return fields


#: Fields for which `None` says nothing.
_REQUIRED = frozenset(("id", "object", "created", "model", "index"))


def _choice(asked: _Asked, index: int, choice: Any, is_chunk: bool) -> Any:
    choice = _dumped(choice)
    if not isinstance(choice, dict):
        return choice
    found = {
        "index": index,
        **{name: value for name, value in choice.items() if value is not None or name not in _REQUIRED},
    }
    if is_chunk and asked.api == "chat_completions" and "delta" not in found and "message" in found:
        # A whole answer, although the request asks for a stream.
        found = {("delta" if name == "message" else name): value for name, value in found.items()}
    return found


def _embeddings(asked: _Asked, answer: Dict[str, Any]) -> Dict[str, Any]:
    data = answer.get("data")
    as_text = asked.body.get("encoding_format") == "base64"
    items = []
    for index, item in enumerate(data if isinstance(data, (list, tuple)) else ()):
        item = _dumped(item)
        if not isinstance(item, dict):
            item = {"embedding": item}
        item = {
            "object": "embedding",
            "index": index,
            **{name: value for name, value in item.items() if value is not None},
        }
        if as_text and not isinstance(item.get("embedding"), str):
            item["embedding"] = _base64(item.get("embedding"))
        items.append(item)
    given = {name: value for name, value in answer.items() if value is not None}
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return {"object": "list", "model": asked.body["model"], "usage": usage, **given, "data": items}


def _base64(vector: Any) -> str:
    """Returns the base64 of little-endian FP32. The worker runs on little-endian machines only."""
    if hasattr(vector, "astype"):
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return base64.b64encode(array.array("f", vector).tobytes()).decode()


def _rerank(asked: _Asked, answer: Dict[str, Any]) -> Dict[str, Any]:
    body = asked.body
    documents = body["documents"]
    results = []
    for index, item in enumerate(answer.get("results") or ()):
        item = _dumped(item)
        if not isinstance(item, dict):
            item = {"relevance_score": item}
        item = {"index": index, **{name: value for name, value in item.items() if value is not None}}
        if body.get("return_documents") is False:
            item.pop("document", None)
        elif "document" not in item and isinstance(item["index"], int) and 0 <= item["index"] < len(documents):
            document = documents[item["index"]]
            item["document"] = {"text": document["text"] if isinstance(document, dict) else document}
        results.append(item)
    results.sort(key=lambda item: (-_score(item), item["index"]))
    top = body.get("top_n")
    given = {name: value for name, value in answer.items() if value is not None}
    return {
        "id": asked.id,
        "model": body["model"],
        "usage": {"total_tokens": 0},
        **given,
        "results": results[:top] if top else results,
    }


def _score(item: Dict[str, Any]) -> float:
    score = float(item.get("relevance_score", 0.0))
    return score if score == score else float("-inf")


def _usage(answer: Any) -> Optional[Dict[str, int]]:
    """Returns the tokens of an answer, if it says how many there are."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if prompt is None and completion is None:
        prompt = usage.get("total_tokens")
    found = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {name: count for name, count in found.items() if type(count) is int and 0 <= count < _MAX_TOKENS} or None


# Streams


class _Pieces:
    """The events of a stream: what a method yields, and the end."""

    def __init__(self, asked: _Asked, translate: Callable[[Exception], Exception]) -> None:
        self._asked = asked
        self._translate = translate
        self._usage: Optional[Dict[str, int]] = None
        self._line = ""
        self._is_done = False
        self._is_first = True

    def usage(self) -> Optional[Dict[str, int]]:
        return self._usage

    async def of(self, items: "AsyncGenerator[Any, None]") -> "AsyncGenerator[bytes, None]":
        """Yields the events of items, and closes them. Text is already an event, or a part of one."""
        try:
            async for item in items:
                if isinstance(item, (str, bytes)):
                    text = item if isinstance(item, str) else item.decode("utf-8", "replace")
                    self._read(text)
                    if text:
                        yield text.encode("utf-8", "replace")
                else:
                    chunk = _dumped(item)
                    error = _error_of(item, chunk)
                    if error is not None:
                        yield self._event_of_error(error)
                        return
                    if not isinstance(chunk, dict):
                        raise TypeError(
                            f"the stream has a {type(item).__qualname__}, expected text, a dict or an object with `model_dump`"
                        )
                    chunk = _completed(self._asked, chunk, is_chunk=True)
                    self._usage = _usage(chunk) or self._usage
                    yield _event(chunk)
                self._is_first = False
        except Exception as error:
            yield self._event_of_error(_replied_error(error, self._translate))
            return
        finally:
            await items.aclose()
        if self._line:
            # An event that its text has not ended.
            text, self._line = "\n\n", self._line + "\n"
            self._read("")
            yield text.encode()
        if not self._is_done:
            yield _event_of_text(_DONE)

    def _event_of_error(self, error: Reply) -> bytes:
        """Returns an error as the last event. It is the whole reply if nothing has been sent."""
        if self._is_first:
            raise ReplyInstead(error)
        return b"data: " + error.body + b"\n\n"

    def _read(self, text: str) -> None:
        """Reads the end of the stream and the tokens in lines of text, which may come in several parts."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if line.startswith("data:"):
                content = line[5:].strip()
                if content == _DONE:
                    self._is_done = True
                elif '"usage"' in content:
                    with suppress(ValueError, RecursionError):
                        self._usage = _usage(json.loads(content)) or self._usage
        if len(self._line) > _MAX_LINE:
            # Neither the end nor short enough to be read.
            self._line = "…"
