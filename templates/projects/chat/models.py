"""A tiny language model that answers OpenAI's API."""

import asyncio
import json
import os
from typing import Iterator

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Chat(MLModel):
    """Continues a text word by word, each with the word that follows it most often in the text of `train.py`."""

    async def load(self) -> bool:
        with open(os.path.join(os.path.dirname(__file__), "weights.json"), encoding="utf-8") as file:
            self.weights = json.load(file)
        return True

    async def create_chat_completion(self, request: dict):
        """Answers `/openai/v1/chat/completions`."""
        prompt = str(request["messages"][-1].get("content") or "")
        words = self._continue(prompt, request.get("max_completion_tokens") or request.get("max_tokens") or 16)
        if request.get("stream"):
            return self._chunks(words)
        answer = list(words)
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(answer)}
        return {
            "choices": [{"message": {"role": "assistant", "content": " ".join(answer)}, "finish_reason": "stop"}],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers requests of the V2 protocol."""
        prompts = self.decode(payload.inputs[0], default_codec=StringCodec)
        texts = [" ".join(self._continue(prompt, 16)) for prompt in prompts]
        return InferenceResponse(
            model_name=self.name, model_version=self.version, outputs=[StringCodec.encode_output("text", texts)]
        )

    async def _chunks(self, words: Iterator[str]):
        for index, word in enumerate(words):
            delta = {"role": "assistant"} if index == 0 else {}
            yield {"choices": [{"delta": {**delta, "content": word if index == 0 else f" {word}"}}]}
            # Others get their turn between two words.
            await asyncio.sleep(0)
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}

    def _continue(self, prompt: str, limit: int) -> Iterator[str]:
        word = next((word for word in reversed(prompt.lower().split()) if word in self.weights), "the")
        seen = set()
        for _ in range(limit):
            # No two words twice, so that the text does not go round in circles.
            previous, word = word, next((each for each in self.weights.get(word, []) if (word, each) not in seen), ".")
            if word == ".":
                return
            seen.add((previous, word))
            yield word
