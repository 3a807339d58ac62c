"""Requests and answers of OpenAI's API.

They have every field that they are given, under its own name. The known ones that are absent have the defaults of vLLM, or are
`None`. Nothing is checked.
"""

import copy
import json
import time
import uuid
from typing import Any, Callable, ClassVar, Dict, Mapping, Optional, Set, Tuple, Type

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
    #: The values of other fields if they are absent, or functions that make them.
    _defaults: ClassVar[Mapping[str, Any]] = {}
    #: Whether a dump has all fields that are absent, as pydantic's has. Answers have only those with a value.
    _dumps_all: ClassVar[bool] = False
    #: The types of fields that are objects themselves, or lists of them.
    _parts: "ClassVar[Mapping[str, Type[OpenAIRecord]]]" = {}

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", {name: self._part(name, value) for name, value in fields.items()})
        #: The defaults that have been asked for: an object keeps its own lists and ids.
        object.__setattr__(self, "_made", {})

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
        if name in type(self)._defaults and "_made" in self.__dict__:
            return self._default(name)
        if name in type(self)._known:
            return None
        raise AttributeError(f"`{type(self).__name__}` has no field `{name}`")

    def _default(self, name: str) -> Any:
        if name not in self._made:
            value = type(self)._defaults[name]
            self._made[name] = value() if callable(value) else value
        return self._made[name]

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

    @classmethod
    def model_construct(cls, _fields_set: Optional[Set[str]] = None, **fields: Any) -> Any:
        """Returns an object with these fields."""
        return cls(**fields)

    @property
    def model_fields_set(self) -> Set[str]:
        """The names of the fields that are not absent."""
        return set(self._fields)

    def model_dump(
        self,
        *,
        include: Any = None,
        exclude: Any = None,
        exclude_unset: bool = False,
        exclude_none: bool = False,
        **_options: Any,
    ) -> Dict[str, Any]:
        """Returns the fields, as dictionaries and lists."""
        fields = self._fields if exclude_unset else {**self._fields, **self._absent()}
        return {
            name: _dumped(value, exclude_unset, exclude_none)
            for name, value in fields.items()
            if (include is None or name in include)
            and name not in (exclude or ())
            and not (exclude_none and value is None)
        }

    def _absent(self) -> Dict[str, Any]:
        """Returns the values of the fields that are absent."""
        cls = type(self)
        found = {name: self._default(name) for name in cls._defaults if name not in self._fields}
        if cls._dumps_all:
            return {**dict.fromkeys(name for name in cls._known if name not in self._fields), **found}
        return {name: value for name, value in found.items() if value != []}

    def model_dump_json(self, *, indent: Optional[int] = None, **options: Any) -> str:
        """Returns the fields as JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(**options), ensure_ascii=False, separators=separators, indent=indent)

    def model_copy(self, *, update: Optional[Dict[str, Any]] = None, deep: bool = False) -> Any:
        """Returns a copy, with other values of some fields."""
        fields = self.model_dump(exclude_unset=True) if deep else self._fields
        found = type(self)(**{**fields, **(update or {})})
        found._made.update(copy.deepcopy(self._made) if deep else self._made)
        return found


def _dumped(value: Any, exclude_unset: bool, exclude_none: bool) -> Any:
    if isinstance(value, OpenAIRecord):
        return value.model_dump(exclude_unset=exclude_unset, exclude_none=exclude_none)
    if isinstance(value, (list, tuple)):
        return [_dumped(item, exclude_unset, exclude_none) for item in value]
    if isinstance(value, dict):
        return {name: _dumped(item, exclude_unset, exclude_none) for name, item in value.items()}
    return value


def _random_id() -> str:
    return uuid.uuid4().hex


def _prefixed_id(prefix: str) -> Callable[[], str]:
    return lambda: f"{prefix}-{uuid.uuid4().hex[:16]}"


def _now() -> int:
    return int(time.time())


#: Messages and their parts are dictionaries.
ChatCompletionMessageParam = Dict[str, Any]
CustomChatCompletionMessageParam = Dict[str, Any]
ChatCompletionAssistantMessageParam = Dict[str, Any]
ChatCompletionToolMessageParam = Dict[str, Any]
ChatCompletionContentPartParam = Dict[str, Any]
ChatCompletionContentPartTextParam = Dict[str, Any]
ConversationMessage = Dict[str, Any]

#: The defaults of all requests.
_REQUEST = {"request_id": _random_id, "priority": 0}
#: What chats and completions have in common.
_SAMPLING = (
    "model",
    "allowed_token_ids",
    "cache_salt",
    "kv_transfer_params",
    "logit_bias",
    "max_tokens",
    "min_p",
    "prompt_logprobs",
    "repetition_detection",
    "repetition_penalty",
    "response_format",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "seed",
    "stream_options",
    "structured_outputs",
    "temperature",
    "thinking_token_budget",
    "top_k",
    "top_p",
    "truncate_prompt_tokens",
    "truncation_side",
    "user",
    "vllm_xargs",
)
_SAMPLING_DEFAULTS = {
    **_REQUEST,
    "echo": False,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "length_penalty": 1.0,
    "min_tokens": 0,
    "n": 1,
    "presence_penalty": 0.0,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "stop": list,
    "stop_token_ids": list,
    "stream": False,
    "use_beam_search": False,
}
#: What encoders have in common.
_ENCODING = (
    "model",
    "cache_salt",
    "mm_processor_kwargs",
    "truncate_prompt_tokens",
    "truncation_side",
    "use_activation",
    "user",
)
#: What choices have besides the fields of OpenAI's API.
_CHOICE = ("prompt_logprobs", "prompt_token_ids", "routed_experts", "token_ids")
_ANSWER = (
    "model",
    "choices",
    "kv_transfer_params",
    "prompt_logprobs",
    "prompt_text",
    "prompt_token_ids",
    "service_tier",
    "system_fingerprint",
    "usage",
)


class CompletionRequest(OpenAIRecord):
    """A request for completions."""

    _known = (*_SAMPLING, "best_of", "logprobs", "prompt", "prompt_embeds", "suffix")
    _defaults = {**_SAMPLING_DEFAULTS, "add_special_tokens": True, "max_tokens": 16}
    _dumps_all = True


class ChatCompletionRequest(OpenAIRecord):
    """A request for a chat completion. Its messages are dictionaries."""

    _known = (
        *_SAMPLING,
        "chat_template",
        "chat_template_kwargs",
        "documents",
        "max_completion_tokens",
        "media_io_kwargs",
        "messages",
        "mm_processor_kwargs",
        "reasoning_effort",
        "return_prompt_text",
        "tools",
    )
    _defaults = {
        **_SAMPLING_DEFAULTS,
        "add_generation_prompt": True,
        "add_special_tokens": False,
        "bad_words": list,
        "continue_final_message": False,
        "include_reasoning": True,
        "logprobs": False,
        "parallel_tool_calls": True,
        "tool_choice": "none",
        "top_logprobs": 0,
    }
    _dumps_all = True

    def _default(self, name: str) -> Any:
        if name == "tool_choice" and self.tools:
            return "auto"
        return super()._default(name)


class EmbeddingRequest(OpenAIRecord):
    """A request for embeddings."""

    _known = (*_ENCODING, "dimensions", "input", "messages")
    _defaults = {
        **_REQUEST,
        "add_special_tokens": True,
        "embed_dtype": "float32",
        "encoding_format": "float",
        "endianness": "native",
    }
    _dumps_all = True


class EmbeddingCompletionRequest(EmbeddingRequest):
    """A request for embeddings of texts or tokens."""


class RerankRequest(OpenAIRecord):
    """A request to rank documents."""

    _known = (*_ENCODING, "chat_template_kwargs", "documents", "instruction", "query", "return_documents")
    _defaults = {**_REQUEST, "max_tokens_per_doc": 0, "max_tokens_per_query": 0, "top_n": 0}
    _dumps_all = True


class UsageInfo(OpenAIRecord):
    """How many tokens a request took."""

    _known = ("prompt_tokens_details",)
    _defaults = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}


class CompletionLogProbs(OpenAIRecord):
    """The log probabilities of a completion's tokens."""

    _defaults = {"text_offset": list, "token_logprobs": list, "tokens": list, "top_logprobs": list}


class CompletionChoice(OpenAIRecord):
    """One completion."""

    _known = ("index", "text", "logprobs", "finish_reason", "stop_reason", *_CHOICE)
    _parts = {"logprobs": CompletionLogProbs}


class Completion(OpenAIRecord):
    """Completions."""

    _known = _ANSWER
    _defaults = {"id": _prefixed_id("cmpl"), "object": "text_completion", "created": _now}
    _parts = {"choices": CompletionChoice, "usage": UsageInfo}


class CompletionChunkChoice(CompletionChoice):
    """The next part of one completion."""


class CompletionChunk(OpenAIRecord):
    """The next part of completions."""

    _known = _ANSWER
    _defaults = {"id": _prefixed_id("cmpl"), "object": "text_completion", "created": _now}
    _parts = {"choices": CompletionChunkChoice, "usage": UsageInfo}


class ChatCompletionLogProb(OpenAIRecord):
    """The log probability of a token."""

    _known = ("token", "bytes")
    _defaults = {"logprob": -9999.0}


class ChatCompletionLogProbsContent(OpenAIRecord):
    """The log probability of a token, and those of others in its place."""

    _known = ("token", "bytes")
    _defaults = {"logprob": -9999.0, "top_logprobs": list}
    _parts = {"top_logprobs": ChatCompletionLogProb}


class ChatCompletionLogProbs(OpenAIRecord):
    """The log probabilities of a message's tokens."""

    _known = ("content",)
    _parts = {"content": ChatCompletionLogProbsContent}


class ChatMessage(OpenAIRecord):
    """A message of a model."""

    _known = ("role", "content", "refusal", "function_call", "reasoning", "annotations", "audio")
    _defaults = {"tool_calls": list}


class ChoiceDelta(ChatMessage):
    """The next part of a message."""


class ChatCompletionChoice(OpenAIRecord):
    """One message."""

    _known = ("index", "message", "logprobs", "stop_reason", *_CHOICE)
    _defaults = {"finish_reason": "stop"}
    _parts = {"message": ChatMessage, "logprobs": ChatCompletionLogProbs}


class ChatCompletion(OpenAIRecord):
    """The messages that answer a chat."""

    _known = _ANSWER
    _defaults = {"id": _prefixed_id("chatcmpl"), "object": "chat.completion", "created": _now}
    _parts = {"choices": ChatCompletionChoice, "usage": UsageInfo}


class ChunkChoice(OpenAIRecord):
    """The next part of one message."""

    _known = ("index", "delta", "logprobs", "finish_reason", "stop_reason", *_CHOICE)
    _parts = {"delta": ChoiceDelta, "logprobs": ChatCompletionLogProbs}


class ChatCompletionChunk(OpenAIRecord):
    """The next part of messages."""

    _known = _ANSWER
    _defaults = {"id": _prefixed_id("chatcmpl"), "object": "chat.completion.chunk", "created": _now}
    _parts = {"choices": ChunkChoice, "usage": UsageInfo}


class EmbeddingResponseData(OpenAIRecord):
    """One embedding."""

    _known = ("index", "embedding")
    _defaults = {"object": "embedding"}


class Embedding(OpenAIRecord):
    """Embeddings."""

    _known = ("model", "data", "usage")
    _defaults = {"id": _prefixed_id("embd"), "object": "list", "created": _now}
    _parts = {"data": EmbeddingResponseData, "usage": UsageInfo}


class Rerank(OpenAIRecord):
    """Documents and their scores."""

    _known = ("id", "model", "usage", "results")


class Model(OpenAIRecord):
    """A model in the list of models."""

    _known = ("id", "owned_by", "root", "parent", "max_model_len")
    _defaults = {"object": "model", "created": _now, "permission": list}


class ModelList(OpenAIRecord):
    """The list of models."""

    _defaults = {"object": "list", "data": list}
    _parts = {"data": Model}


class Error(OpenAIRecord):
    """Why a request failed. `code` is the status of the answer, as text."""

    _known = ("code", "message", "param", "type")


class ErrorResponse(OpenAIRecord):
    """The answer to a request that failed."""

    _known = ("error",)
    _parts = {"error": Error}
