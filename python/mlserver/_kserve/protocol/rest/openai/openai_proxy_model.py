"""Models that pass requests on to another server of OpenAI's API."""

import json
from http import HTTPStatus
from typing import Any, AsyncGenerator, Dict, Optional, Type

from ....._http import HttpPool, RequestTimeout, StreamedResponse, Unreachable
from .errors import OpenAIError, create_error_response
from .openai_model import OpenAIGenerativeModel
from .types import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    Completion,
    CompletionChunk,
    CompletionRequest,
    Error,
    ErrorResponse,
    OpenAIRecord,
)

__all__ = ["CHAT_COMPLETIONS_ENDPOINT", "COMPLETIONS_ENDPOINT", "OpenAIProxyModel"]

COMPLETIONS_ENDPOINT = "/v1/completions"
CHAT_COMPLETIONS_ENDPOINT = "/v1/chat/completions"

#: How long the other server may take for each part of an answer, in seconds.
_READ_TIMEOUT = 30.0
#: How long the question for its health may take, in seconds.
_HEALTH_TIMEOUT = 5.0

#: The headers of a request that are passed on. The key of this server is not one of them.
_FORWARDED = ("x-request-id", "x-b3-traceid", "traceparent")


class UpstreamStatusError(Exception):
    """The reason of an error: the status of the other server's response."""

    def __init__(self, response: StreamedResponse) -> None:
        super().__init__(f"upstream answered with status {response.status_code}")
        self.response = response


class OpenAIProxyModel(OpenAIGenerativeModel):
    """A model that another server answers for.

    Subclasses change requests and answers in the `preprocess_…` and `postprocess_…` methods.
    """

    def __init__(
        self,
        name: str,
        predictor_url: str,
        http_client: Any = None,
        skip_upstream_validation: bool = False,
        health_endpoint: Optional[str] = "/health",
    ) -> None:
        super().__init__(name)
        if http_client is not None:
            raise ValueError("`http_client` is not used here: install KServe's package with vLLM for a client of httpx")
        self.predictor_url = predictor_url.rstrip("/")
        self.skip_upstream_validation = skip_upstream_validation
        self._health_endpoint = health_endpoint
        self._http_client = HttpPool()

    def preprocess_completion_request(self, request: CompletionRequest, raw_request: Any = None) -> None:
        """Changes a request before it is sent."""

    def postprocess_completion(
        self, completion: Completion, request: CompletionRequest, raw_request: Any = None
    ) -> Optional[Completion]:
        """Changes an answer, or returns another one."""

    def postprocess_completion_chunk(
        self, completion: CompletionChunk, request: CompletionRequest, raw_request: Any = None
    ) -> Optional[CompletionChunk]:
        """Changes a chunk of an answer, or returns another one."""

    def preprocess_chat_completion_request(self, request: ChatCompletionRequest, raw_request: Any = None) -> None:
        """Changes a request before it is sent."""

    def postprocess_chat_completion(
        self, chat_completion: ChatCompletion, request: ChatCompletionRequest, raw_request: Any = None
    ) -> Optional[ChatCompletion]:
        """Changes an answer, or returns another one."""

    def postprocess_chat_completion_chunk(
        self, chat_completion_chunk: ChatCompletionChunk, request: ChatCompletionRequest, raw_request: Any = None
    ) -> Optional[ChatCompletionChunk]:
        """Changes a chunk of an answer, or returns another one."""

    async def create_completion(
        self, request: CompletionRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Any:
        """Has the other server complete a prompt."""
        self.preprocess_completion_request(request, raw_request)
        response = await self._send(COMPLETIONS_ENDPOINT, request, context)
        if request.stream:
            return self._chunks(response, CompletionChunk, self.postprocess_completion_chunk, request, raw_request)
        completion = await _answer(response, Completion)
        return self.postprocess_completion(completion, request, raw_request) or completion

    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Any:
        """Has the other server answer a chat."""
        self.preprocess_chat_completion_request(request, raw_request)
        response = await self._send(CHAT_COMPLETIONS_ENDPOINT, request, context)
        if request.stream:
            return self._chunks(
                response, ChatCompletionChunk, self.postprocess_chat_completion_chunk, request, raw_request
            )
        completion = await _answer(response, ChatCompletion)
        return self.postprocess_chat_completion(completion, request, raw_request) or completion

    async def _send(self, endpoint: str, request: OpenAIRecord, context: Optional[Dict[str, Any]]) -> StreamedResponse:
        """Sends a request, and returns the response if it is not an error."""
        given = (context or {}).get("headers") or {}
        headers = {name: value for name, value in given.items() if name.lower() in _FORWARDED}
        headers["content-type"] = "application/json"
        body = request.model_dump_json(exclude_unset=True, exclude_none=True).encode()
        try:
            response = await self._http_client.open("POST", self.predictor_url + endpoint, headers, body, _READ_TIMEOUT)
        except RequestTimeout as error:
            message = f"Timed out when communicating with upstream: {error}"
            raise OpenAIError(_failure(message, "GatewayTimeout", HTTPStatus.GATEWAY_TIMEOUT)) from error
        except (Unreachable, OSError) as error:
            message = f"Failed to communicate with upstream: {error}"
            raise OpenAIError(_failure(message, "ServiceUnavailableError", HTTPStatus.SERVICE_UNAVAILABLE)) from error
        if response.status_code >= 400:
            found = _upstream_error(response.status_code, await response.content())
            raise OpenAIError(found) from UpstreamStatusError(response)
        return response

    async def _chunks(
        self,
        response: StreamedResponse,
        chunk_type: Type[OpenAIRecord],
        postprocess: Any,
        request: Any,
        raw_request: Any,
    ) -> "AsyncGenerator[Any, None]":
        """Yields the chunks of an answer."""
        lines = response.lines()
        try:
            async for line in lines:
                content = line[5:].strip() if line.startswith(b"data:") else b""
                if content == b"[DONE]":
                    return
                if not content:
                    continue
                fields = json.loads(content)
                if "error" in fields:
                    raise OpenAIError(_upstream_error(500, content))
                chunk = chunk_type(**fields)
                yield postprocess(chunk, request, raw_request) or chunk
        finally:
            await lines.aclose()

    async def healthy(self) -> bool:
        """Whether the other server says that it is."""
        if self._health_endpoint is None:
            return bool(self.ready)
        url = self.predictor_url + self._health_endpoint
        try:
            response = await self._http_client.request("GET", url, {}, None, _HEALTH_TIMEOUT)
        except OSError:
            return False
        return response.status_code == 200

    def stop(self) -> None:
        """Closes the connections to the other server."""
        super().stop()
        self._http_client.close()


async def _answer(response: StreamedResponse, answer_type: Type[OpenAIRecord]) -> Any:
    content = await response.content()
    try:
        return answer_type(**json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        message = f"Failed to parse the answer of upstream: {error}"
        raise OpenAIError(_failure(message, "BadGateway", HTTPStatus.BAD_GATEWAY)) from error


def _failure(message: str, kind: str, status: HTTPStatus) -> ErrorResponse:
    return create_error_response(message, err_type=kind, status_code=status)


def _upstream_error(status: int, content: bytes) -> ErrorResponse:
    """Returns the answer for an error of the other server: its own, if it has the form of OpenAI's API."""
    message = content[:1000].decode("utf-8", "replace")
    try:
        error = json.loads(content)["error"]
        if isinstance(error, dict):
            return ErrorResponse(error=error)
        message = str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return ErrorResponse(error=Error(message=message, type="upstream_error", param=None, code=str(status)))
