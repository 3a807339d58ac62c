"""Requests and answers of OpenAI's API.

They have every field that they are given, under its own name, and `None` for the known ones that are absent. Nothing is
checked.
"""

import json
from typing import Any, ClassVar, Dict, Mapping, Optional, Tuple, Type

__all__ = [
    "ChatCompletion",
    "ChatCompletionAssistantMessageParam",
    "ChatCompletionChoice",
    "ChatCompletionChunk",
    "ChatCompletionContentPartParam",
    "ChatCompletionContentPartTextParam",
    "ChatCompletionLogProb",
    "ChatCompletionLogProbs",
    "ChatCompletionLogProbsContent",
    "ChatCompletionMessageParam",
    "ChatCompletionRequest",
    "ChatCompletionToolMessageParam",
    "ChatMessage",
    "ChoiceDelta",
    "ChunkChoice",
    "Completion",
    "CompletionChoice",
    "CompletionChunk",
    "CompletionChunkChoice",
    "CompletionLogProbs",
    "CompletionRequest",
    "ConversationMessage",
    "CustomChatCompletionMessageParam",
    "Embedding",
    "EmbeddingCompletionRequest",
    "EmbeddingRequest",
    "EmbeddingResponseData",
    "Error",
    "ErrorResponse",
    "Model",
    "ModelList",
    "OpenAIRecord",
    "Rerank",
    "RerankRequest",
    "UsageInfo",
]


class OpenAIRecord:
    """An object of OpenAI's API."""

    #: The fields that are `None` if they are absent.
    _known: ClassVar[Tuple[str, ...]] = ()
    #: The types of fields that are objects themselves, or lists of them.
    _parts: "ClassVar[Mapping[str, Type[OpenAIRecord]]]" = {}

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", {name: self._part(name, value) for name, value in fields.items()})

    def _part(self, name: str, value: Any) -> Any:
        part = self._parts.get(name)
        if part is None:
            return value
        if isinstance(value, dict):
            return part(**value)
        if isinstance(value, (list, tuple)):
            return [part(**item) if isinstance(item, dict) else item for item in value]
        return value

    def __getattr__(self, name: str) -> Any:
        # Also called while a copy is made, before there are fields.
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        if name in type(self)._known:
            return None
        raise AttributeError(f"`{type(self).__name__}` has no field `{name}`")

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"

    @classmethod
    def model_validate(cls, fields: Any) -> Any:
        """Returns an object with the fields of a dictionary, or of another object."""
        return cls(**(fields.model_dump() if isinstance(fields, OpenAIRecord) else fields))

    @classmethod
    def model_validate_json(cls, text: Any) -> Any:
        """Returns an object with the fields of a JSON object."""
        return cls(**json.loads(text))

    def model_dump(self, *, exclude_none: bool = False, exclude: Any = (), **_options: Any) -> Dict[str, Any]:
        """Returns the fields, as dictionaries and lists."""
        return {
            name: _dumped(value, exclude_none)
            for name, value in self._fields.items()
            if name not in (exclude or ()) and not (exclude_none and value is None)
        }

    def model_dump_json(self, *, indent: Optional[int] = None, **options: Any) -> str:
        """Returns the fields as JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(**options), ensure_ascii=False, separators=separators, indent=indent)

    def model_copy(self, *, update: Optional[Dict[str, Any]] = None, deep: bool = False) -> Any:
        """Returns a copy, with other values of some fields."""
        fields = self.model_dump() if deep else self._fields
        return type(self)(**{**fields, **(update or {})})


def _dumped(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, OpenAIRecord):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, (list, tuple)):
        return [_dumped(item, exclude_none) for item in value]
    if isinstance(value, dict):
        return {name: _dumped(item, exclude_none) for name, item in value.items()}
    return value


#: Messages and their parts are dictionaries.
ChatCompletionMessageParam = Dict[str, Any]
CustomChatCompletionMessageParam = Dict[str, Any]
ChatCompletionAssistantMessageParam = Dict[str, Any]
ChatCompletionToolMessageParam = Dict[str, Any]
ChatCompletionContentPartParam = Dict[str, Any]
ChatCompletionContentPartTextParam = Dict[str, Any]
ConversationMessage = Dict[str, Any]

_SAMPLING = (
    "model",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "request_id",
    "seed",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    "user",
)
_ANSWER = ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier")


class CompletionRequest(OpenAIRecord):
    """A request for completions."""

    _known = (*_SAMPLING, "best_of", "echo", "prompt", "suffix")


class ChatCompletionRequest(OpenAIRecord):
    """A request for a chat completion. Its messages are dictionaries."""

    _known = (
        *_SAMPLING,
        "add_generation_prompt",
        "chat_template",
        "chat_template_kwargs",
        "max_completion_tokens",
        "messages",
        "parallel_tool_calls",
        "response_format",
        "tool_choice",
        "tools",
        "top_logprobs",
    )


class EmbeddingRequest(OpenAIRecord):
    """A request for embeddings."""

    _known = ("model", "input", "encoding_format", "dimensions", "user", "messages", "truncate_prompt_tokens")


class EmbeddingCompletionRequest(EmbeddingRequest):
    """A request for embeddings of texts or tokens."""


class RerankRequest(OpenAIRecord):
    """A request to rank documents."""

    _known = ("model", "query", "documents", "top_n", "return_documents", "truncate_prompt_tokens", "user")


class UsageInfo(OpenAIRecord):
    """How many tokens a request took."""

    _known = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details")


class CompletionLogProbs(OpenAIRecord):
    """The log probabilities of a completion's tokens."""

    _known = ("text_offset", "token_logprobs", "tokens", "top_logprobs")


class CompletionChoice(OpenAIRecord):
    """One completion."""

    _known = ("index", "text", "logprobs", "finish_reason", "stop_reason")
    _parts = {"logprobs": CompletionLogProbs}


class Completion(OpenAIRecord):
    """Completions."""

    _known = _ANSWER
    _parts = {"choices": CompletionChoice, "usage": UsageInfo}


class CompletionChunkChoice(CompletionChoice):
    """The next part of one completion."""


class CompletionChunk(OpenAIRecord):
    """The next part of completions."""

    _known = _ANSWER
    _parts = {"choices": CompletionChunkChoice, "usage": UsageInfo}


class ChatCompletionLogProb(OpenAIRecord):
    """The log probability of a token."""

    _known = ("token", "logprob", "bytes")


class ChatCompletionLogProbsContent(OpenAIRecord):
    """The log probability of a token, and those of others in its place."""

    _known = ("token", "logprob", "bytes", "top_logprobs")
    _parts = {"top_logprobs": ChatCompletionLogProb}


class ChatCompletionLogProbs(OpenAIRecord):
    """The log probabilities of a message's tokens."""

    _known = ("content",)
    _parts = {"content": ChatCompletionLogProbsContent}


class ChatMessage(OpenAIRecord):
    """A message of a model."""

    _known = ("role", "content", "refusal", "tool_calls", "function_call", "reasoning")


class ChoiceDelta(ChatMessage):
    """The next part of a message."""


class ChatCompletionChoice(OpenAIRecord):
    """One message."""

    _known = ("index", "message", "logprobs", "finish_reason", "stop_reason")
    _parts = {"message": ChatMessage, "logprobs": ChatCompletionLogProbs}


class ChatCompletion(OpenAIRecord):
    """The messages that answer a chat."""

    _known = _ANSWER
    _parts = {"choices": ChatCompletionChoice, "usage": UsageInfo}


class ChunkChoice(OpenAIRecord):
    """The next part of one message."""

    _known = ("index", "delta", "logprobs", "finish_reason", "stop_reason")
    _parts = {"delta": ChoiceDelta, "logprobs": ChatCompletionLogProbs}


class ChatCompletionChunk(OpenAIRecord):
    """The next part of messages."""

    _known = _ANSWER
    _parts = {"choices": ChunkChoice, "usage": UsageInfo}


class EmbeddingResponseData(OpenAIRecord):
    """One embedding."""

    _known = ("index", "object", "embedding")


class Embedding(OpenAIRecord):
    """Embeddings."""

    _known = ("id", "object", "created", "model", "data", "usage")
    _parts = {"data": EmbeddingResponseData, "usage": UsageInfo}


class Rerank(OpenAIRecord):
    """Documents and their scores."""

    _known = ("id", "model", "usage", "results")


class Model(OpenAIRecord):
    """A model in the list of models."""

    _known = ("id", "object", "created", "owned_by")


class ModelList(OpenAIRecord):
    """The list of models."""

    _known = ("object", "data")
    _parts = {"data": Model}


class Error(OpenAIRecord):
    """Why a request failed. `code` is the status of the answer, as text."""

    _known = ("code", "message", "param", "type")


class ErrorResponse(OpenAIRecord):
    """The answer to a request that failed."""

    _known = ("error",)
    _parts = {"error": Error}
