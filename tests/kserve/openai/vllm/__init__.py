"""What KServe's OpenAI classes import of vLLM, which is too large for these tests: types of the same shape.

A few fields of each type, with vLLM's defaults. Other fields are accepted, as by vLLM.
"""

import sys
import time
import uuid
from types import ModuleType
from typing import Any, Dict, List, Optional, Union

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    model_config = ConfigDict(extra="allow")


class Request(Record):
    model: Optional[str] = None
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    priority: int = 0
    user: Optional[str] = None


class Sampling(Request):
    frequency_penalty: Optional[float] = 0.0
    logit_bias: Optional[Dict[str, float]] = None
    n: int = 1
    presence_penalty: Optional[float] = 0.0
    seed: Optional[int] = None
    stop: Optional[Union[str, List[str]]] = []
    stream: Optional[bool] = False
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    echo: bool = False


class CompletionRequest(Sampling):
    prompt: Optional[Union[str, List[str]]] = None
    max_tokens: Optional[int] = 16
    logprobs: Optional[int] = None


class ChatCompletionRequest(Sampling):
    messages: List[Dict[str, Any]]
    logprobs: Optional[bool] = False
    max_tokens: Optional[int] = None
    top_logprobs: Optional[int] = 0


class EmbeddingCompletionRequest(Request):
    input: Union[str, List[str]]
    dimensions: Optional[int] = None
    encoding_format: str = "float"


class EmbeddingChatRequest(Request):
    messages: List[Dict[str, Any]]


class RerankRequest(Request):
    query: str
    documents: List[str]
    top_n: int = 0


class UsageInfo(Record):
    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: Optional[int] = 0


class CompletionLogProbs(Record):
    text_offset: List[int] = []
    token_logprobs: List[Optional[float]] = []
    tokens: List[str] = []
    top_logprobs: List[Optional[Dict[str, float]]] = []


class Choice(Record):
    index: int
    logprobs: Optional[Any] = None
    finish_reason: Optional[str] = None


class CompletionChoice(Choice):
    text: str


class Message(Record):
    role: Optional[str] = None
    content: Optional[str] = None


class ChatChoice(Choice):
    message: Message
    finish_reason: Optional[str] = "stop"


class ChunkChoice(Choice):
    delta: Message


class Answer(Record):
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    created: int = Field(default_factory=lambda: int(time.time()))
    model: str
    usage: Optional[UsageInfo] = None
    system_fingerprint: Optional[str] = None


class Completion(Answer):
    object: str = "text_completion"
    choices: List[CompletionChoice]


class ChatCompletion(Answer):
    object: str = "chat.completion"
    choices: List[ChatChoice]


class ChatCompletionChunk(Answer):
    object: str = "chat.completion.chunk"
    choices: List[ChunkChoice]


class EmbeddingData(Record):
    index: int
    object: str = "embedding"
    embedding: Union[List[float], str]


class Embedding(Answer):
    object: str = "list"
    data: List[EmbeddingData]


class Rerank(Record):
    id: str
    model: str
    usage: Dict[str, int]
    results: List[Dict[str, Any]]


def _module(name: str, **members: Any) -> None:
    *parents, _ = name.split(".")
    for index in range(len(parents)):
        parent = f"vllm.{'.'.join(parents[: index + 1])}"
        if parent not in sys.modules:
            sys.modules[parent] = ModuleType(parent)
    module = sys.modules[f"vllm.{name}"] = ModuleType(f"vllm.{name}")
    module.__dict__.update(members)


_module(
    "entrypoints.openai.chat_completion.protocol",
    ChatCompletionResponseChoice=ChatChoice,
    ChatCompletionLogProb=Record,
    ChatCompletionLogProbs=Record,
    ChatCompletionStreamResponse=ChatCompletionChunk,
    ChatCompletionResponseStreamChoice=ChunkChoice,
    ChatMessage=Message,
    ChatCompletionLogProbsContent=Record,
    ChatCompletionRequest=ChatCompletionRequest,
    ChatCompletionResponse=ChatCompletion,
)
_module(
    "entrypoints.openai.completion.protocol",
    CompletionResponseChoice=CompletionChoice,
    CompletionStreamResponse=Completion,
    CompletionResponseStreamChoice=CompletionChoice,
    CompletionLogProbs=CompletionLogProbs,
    CompletionRequest=CompletionRequest,
    CompletionResponse=Completion,
)
_module(
    "entrypoints.openai.engine.protocol", DeltaMessage=Message, UsageInfo=UsageInfo, ModelCard=Record, ModelList=Record
)
_module(
    "entrypoints.pooling.embed.protocol",
    # `X | Y`, which cannot be called.
    EmbeddingRequest=Union[EmbeddingCompletionRequest, EmbeddingChatRequest],
    EmbeddingResponse=Embedding,
    EmbeddingResponseData=EmbeddingData,
    EmbeddingCompletionRequest=EmbeddingCompletionRequest,
)
_module("entrypoints.pooling.scoring.protocol", RerankRequest=RerankRequest, RerankResponse=Rerank)
_module(
    "entrypoints.chat_utils",
    **dict.fromkeys(
        (
            "ChatCompletionContentPartParam",
            "CustomChatCompletionMessageParam",
            "ChatCompletionMessageParam",
            "ChatCompletionToolMessageParam",
            "ChatCompletionContentPartTextParam",
            "ChatCompletionAssistantMessageParam",
            "ConversationMessage",
        ),
        Dict[str, Any],
    ),
)
_module("entrypoints.serve.utils.api_utils", with_cancellation=lambda function: function)
