"""A language model that continues sequences of tokens."""

import json
from typing import List

from mlserver import MLModel
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from mlserver.utils import get_model_uri

END = 0


class LanguageModel(MLModel):
    """Appends the token that most often follows the last ones, until the text ends or is long enough."""

    async def load(self) -> bool:
        with open(await get_model_uri(self._settings), encoding="utf-8") as file:
            model = json.load(file)
        self._order = model["order"]
        self._next = {tuple(map(int, context.split())): token for context, token in model["next"].items()}
        self._new_tokens = self._settings.parameters.extra["new_tokens"]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: tensor for tensor in payload.inputs}
        if not {"input_ids", "attention_mask"} <= inputs.keys():
            raise InferenceError("expected the inputs `input_ids` and `attention_mask`")
        rows, columns = inputs["input_ids"].shape
        tokens, mask = list(inputs["input_ids"].data), list(inputs["attention_mask"].data)
        texts = []
        for row_index in range(rows):
            row = range(row_index * columns, (row_index + 1) * columns)
            texts.append(self._continue([tokens[index] for index in row if mask[index]]))
        longest = max(map(len, texts), default=0)
        padded = [token for text in texts for token in [*text, *[END] * (longest - len(text))]]
        output = ResponseOutput(name="output_ids", datatype="INT64", shape=[len(texts), longest], data=padded)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])

    def _continue(self, tokens: List[int]) -> List[int]:
        tokens = list(tokens)
        for _ in range(self._new_tokens):
            token = self._predict(tokens)
            if token == END:
                break
            tokens.append(token)
        return tokens

    def _predict(self, tokens: List[int]) -> int:
        for length in range(min(self._order, len(tokens)), -1, -1):
            token = self._next.get(tuple(tokens[len(tokens) - length :]))
            if token is not None:
                return token
        return END
