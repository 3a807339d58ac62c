"""KServe's classes for models that answer OpenAI's API, without vLLM, pydantic and FastAPI."""

from .openai_chat_adapter_model import OpenAIChatAdapterModel
from .openai_model import ChatPrompt, OpenAIEncoderModel, OpenAIGenerativeModel, OpenAIModel
from .openai_proxy_model import OpenAIProxyModel
from .types import ChatCompletionMessageParam, ChatCompletionRequest, CompletionRequest

__all__ = [
    "ChatCompletionMessageParam",
    "ChatCompletionRequest",
    "ChatPrompt",
    "CompletionRequest",
    "OpenAIChatAdapterModel",
    "OpenAIEncoderModel",
    "OpenAIGenerativeModel",
    "OpenAIModel",
    "OpenAIProxyModel",
]
