"""Base classes of models that answer OpenAI's API."""

from abc import abstractmethod
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Dict, Optional, Union

from ....model import BaseKServeModel
from .types import (
    ChatCompletion,
    ChatCompletionRequest,
    Completion,
    CompletionRequest,
    Embedding,
    EmbeddingRequest,
    ErrorResponse,
    OpenAIRecord,
    Rerank,
    RerankRequest,
)

__all__ = [
    "AsyncMappingIterator",
    "ChatCompletionRequest",
    "ChatPrompt",
    "CompletionRequest",
    "OpenAIEncoderModel",
    "OpenAIGenerativeModel",
    "OpenAIModel",
]


class ChatPrompt(OpenAIRecord):
    """The prompt that a chat becomes, and the role of the one who answers it."""

    def __init__(self, prompt: str, response_role: str = "assistant", **fields: Any) -> None:
        super().__init__(prompt=prompt, response_role=response_role, **fields)


class OpenAIModel(BaseKServeModel):
    """A model that answers OpenAI's API. It is ready at once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True


class OpenAIGenerativeModel(OpenAIModel):
    """A model that completes texts, or answers chats."""

    @abstractmethod
    async def create_completion(
        self, request: CompletionRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Union[AsyncGenerator[str, None], Completion, ErrorResponse]:
        """Completes a prompt, whole or as a stream."""

    @abstractmethod
    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Union[AsyncGenerator[str, None], ChatCompletion, ErrorResponse]:
        """Answers a chat, whole or as a stream."""


class OpenAIEncoderModel(OpenAIModel):
    """A model that makes embeddings, or ranks documents."""

    @abstractmethod
    async def create_embedding(
        self, request: EmbeddingRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Union[Embedding, ErrorResponse]:
        """Returns the embeddings of texts."""

    @abstractmethod
    async def create_rerank(
        self, request: RerankRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Union[Rerank, ErrorResponse]:
        """Returns documents and their scores."""


def _same(item: Any) -> Any:
    return item


class AsyncMappingIterator:
    """The items of an asynchronous iterator, each changed by a function, which may be a coroutine function."""

    def __init__(
        self,
        iterator: AsyncIterator[Any],
        mapper: Callable[[Any], Any] = _same,
        skip_none: bool = True,
        close: Optional[Callable[[], Any]] = None,
    ) -> None:
        self.iterator = iterator
        self.mapper = mapper
        self.skip_none = skip_none
        self.close = close

    def __aiter__(self) -> "AsyncMappingIterator":
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                item = self.mapper(await self.iterator.__anext__())
                if hasattr(item, "__await__"):
                    item = await item
            except BaseException:
                await self.aclose()
                raise
            if item is not None or not self.skip_none:
                return item

    async def aclose(self) -> None:
        """Closes the iterator."""
        close, self.close = self.close, None
        if close is not None:
            closed = close()
            if hasattr(closed, "__await__"):
                await closed
        if hasattr(self.iterator, "aclose"):
            await self.iterator.aclose()
