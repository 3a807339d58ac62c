"""Models that complete texts, and answer chats with that."""

import json
from abc import abstractmethod
from typing import Any, Dict, Optional

from ....errors import InvalidInput
from .openai_model import ChatPrompt, OpenAIGenerativeModel
from .types import ChatCompletionRequest, CompletionRequest

__all__ = ["OpenAIChatAdapterModel"]

#: What only a chat has.
_OF_CHATS = (
    "messages",
    "top_logprobs",
    "max_completion_tokens",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
)


class OpenAIChatAdapterModel(OpenAIGenerativeModel):
    """A model that completes texts. Chats become prompts, and completions become messages."""

    @abstractmethod
    def apply_chat_template(self, request: ChatCompletionRequest) -> ChatPrompt:
        """Returns the prompt of a chat."""

    @classmethod
    def chat_completion_params_to_completion_params(
        cls, request: ChatCompletionRequest, prompt: str
    ) -> CompletionRequest:
        """Returns the request for a completion that answers a chat."""
        fields = request.model_dump(exclude_unset=True, exclude=_OF_CHATS)
        if fields.get("max_tokens") is None and request.max_completion_tokens is not None:
            fields["max_tokens"] = request.max_completion_tokens
        if isinstance(request.logprobs, bool):
            # A chat says whether, and a completion how many.
            fields["logprobs"] = (request.top_logprobs or 0) if request.logprobs else None
        return CompletionRequest(**{**fields, "prompt": prompt})

    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Any = None, context: Optional[Dict[str, Any]] = None
    ) -> Any:
        """Answers a chat with a completion of its prompt."""
        if request.n not in (None, 1):
            raise InvalidInput("n != 1 is not supported")
        chat = self.apply_chat_template(request)
        completion = self.create_completion(
            self.chat_completion_params_to_completion_params(request, chat.prompt), raw_request, context
        )
        found: Any = await completion if hasattr(completion, "__await__") else completion
        if hasattr(found, "__aiter__"):
            return _chunks(found, chat.response_role)
        answer = found.model_dump() if hasattr(found, "model_dump") else found
        if not isinstance(answer, dict) or "choices" not in answer:
            return found
        return _chat(answer, chat.response_role, is_chunk=False, is_first=True)


async def _chunks(completions: Any, role: str) -> Any:
    """Yields the chunks of a chat for those of a completion: objects, or text of events."""
    is_first = True
    text = ""
    try:
        async for item in completions:
            if isinstance(item, (str, bytes)):
                text += item if isinstance(item, str) else item.decode("utf-8", "replace")
                *events, text = text.replace("\r\n", "\n").split("\n\n")
                for event in events:
                    content = event[5:].strip() if event.startswith("data:") else ""
                    if content.startswith("{"):
                        yield _chat(json.loads(content), role, is_chunk=True, is_first=is_first)
                        is_first = False
                continue
            chunk = item.model_dump() if hasattr(item, "model_dump") else item
            if "choices" in chunk:
                chunk = _chat(chunk, role, is_chunk=True, is_first=is_first)
            yield chunk
            is_first = False
    finally:
        if hasattr(completions, "aclose"):
            await completions.aclose()


def _chat(completion: Dict[str, Any], role: str, is_chunk: bool, is_first: bool) -> Dict[str, Any]:
    """Returns the chat for a completion, or a chunk of one."""
    choices = []
    for choice in completion.get("choices") or ():
        message: Dict[str, Any] = {"role": role} if is_first or not is_chunk else {}
        message["content"] = choice.get("text")
        kept = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
        choices.append(
            {**kept, "delta" if is_chunk else "message": message, "logprobs": _logprobs(choice.get("logprobs"))}
        )
    kept = {name: value for name, value in completion.items() if name not in ("object", "choices")}
    return {**kept, "object": "chat.completion.chunk" if is_chunk else "chat.completion", "choices": choices}


def _logprobs(logprobs: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Returns the log probabilities of a completion in the form that chats have."""
    if not logprobs:
        return None
    tops = logprobs.get("top_logprobs") or []
    content = []
    for index, (token, logprob) in enumerate(zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ())):
        others = (tops[index] if index < len(tops) else None) or {}
        content.append({**_token(token, logprob), "top_logprobs": [_token(*other) for other in others.items()]})
    return {"content": content}


def _token(token: str, logprob: Any) -> Dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}
