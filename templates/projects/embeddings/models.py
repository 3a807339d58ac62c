"""A tiny embedding model that answers OpenAI's API."""

import json
import math
import os
from typing import List

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Embeddings(MLModel):
    """Adds the vectors of the words of a text, which `train.py` has made."""

    async def load(self) -> bool:
        with open(os.path.join(os.path.dirname(__file__), "weights.json"), encoding="utf-8") as file:
            self.weights = json.load(file)
        self.width = len(next(iter(self.weights.values())))
        return True

    def create_embedding(self, request: dict) -> dict:
        """Answers `/openai/v1/embeddings`."""
        texts = request["input"]
        texts = [texts] if isinstance(texts, str) else texts
        words = sum(len(text.split()) for text in texts)
        data = [{"embedding": self._embed(text)} for text in texts]
        return {"data": data, "usage": {"prompt_tokens": words, "total_tokens": words}}

    def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers requests of the V2 protocol."""
        texts = self.decode(payload.inputs[0], default_codec=StringCodec)
        numbers = [number for text in texts for number in self._embed(text)]
        output = ResponseOutput(name="embedding", datatype="FP32", shape=[len(texts), self.width], data=numbers)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])

    def _embed(self, text: str) -> List[float]:
        vectors = [self.weights[word] for word in text.lower().split() if word in self.weights]
        total = [sum(column) for column in zip(*vectors)] or [0.0] * self.width
        length = math.sqrt(sum(number * number for number in total)) or 1.0
        return [number / length for number in total]
