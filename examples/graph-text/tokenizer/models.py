"""A byte-pair encoding in both directions. The variable `TOKENIZER_TYPE` of the worker selects one: ENCODER or DECODER."""

import json
import os
import re
from typing import List

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput
from mlserver.utils import get_model_uri

END = 0
FIRST_PAIR = 257
#: Words with the space before them, and punctuation.
WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s+")


class Tokenizer(MLModel):
    """Encodes texts as tokens, or decodes tokens."""

    async def load(self) -> bool:
        self._type = os.environ.get("TOKENIZER_TYPE", "ENCODER")
        if self._type not in ("ENCODER", "DECODER"):
            raise MLServerError(f"TOKENIZER_TYPE is `{self._type}`, expected ENCODER or DECODER")
        with open(await get_model_uri(self._settings), encoding="utf-8") as file:
            pairs = [tuple(pair) for pair in json.load(file)]
        self._tokens = {pair: FIRST_PAIR + index for index, pair in enumerate(pairs)}
        self._bytes = [b"", *(bytes([byte]) for byte in range(256))]
        for first, second in pairs:
            self._bytes.append(self._bytes[first] + self._bytes[second])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        predict = self._encode if self._type == "ENCODER" else self._decode
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=predict({tensor.name: tensor for tensor in payload.inputs}),
        )

    def _encode(self, inputs: dict) -> List[ResponseOutput]:
        texts = [self._encode_text(text) for text in StringCodec.decode_input(_input(inputs, "text"))]
        longest = max(map(len, texts), default=0)
        shape = [len(texts), longest]
        tokens = [token for text in texts for token in [*text, *[END] * (longest - len(text))]]
        mask = [int(index < len(text)) for text in texts for index in range(longest)]
        return [
            ResponseOutput(name="input_ids", datatype="INT64", shape=shape, data=tokens),
            ResponseOutput(name="attention_mask", datatype="INT64", shape=shape, data=mask),
        ]

    def _encode_text(self, text: str) -> List[int]:
        return [token for word in WORD.findall(text) for token in self._encode_word(word)]

    def _encode_word(self, word: str) -> List[int]:
        tokens = [byte + 1 for byte in word.encode()]
        while True:
            known = [self._tokens[pair] for pair in zip(tokens, tokens[1:]) if pair in self._tokens]
            if not known:
                return tokens
            # The pairs are applied in the order in which they were learned.
            first = min(known)
            merged: List[int] = []
            for token in tokens:
                if merged and self._tokens.get((merged[-1], token)) == first:
                    merged[-1] = first
                else:
                    merged.append(token)
            tokens = merged

    def _decode(self, inputs: dict) -> List[ResponseOutput]:
        tensor = _input(inputs, "output_ids")
        rows, columns = tensor.shape
        tokens = list(tensor.data)
        texts = []
        for row in range(rows):
            known = (token for token in tokens[row * columns : (row + 1) * columns] if 0 < token < len(self._bytes))
            texts.append(b"".join(self._bytes[token] for token in known).decode(errors="replace"))
        return [StringCodec.encode_output("text", texts)]


def _input(inputs: dict, name: str) -> RequestInput:
    if name not in inputs:
        raise InferenceError(f"expected an input `{name}`, got {', '.join(sorted(inputs)) or 'none'}")
    return inputs[name]
