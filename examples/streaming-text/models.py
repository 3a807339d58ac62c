"""Text that is streamed word by word."""

import asyncio
from typing import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class TextModel(MLModel):
    """Returns the text of the request: in one response, or as a stream of its words."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self._response(self._text_of(payload))

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            for word in self._text_of(payload).split():
                await asyncio.sleep(0.01)
                yield self._response(f"{word} ")

    def _text_of(self, payload: InferenceRequest) -> str:
        return self.decode(payload.inputs[0], default_codec=StringCodec)[0]

    def _response(self, text: str) -> InferenceResponse:
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[StringCodec.encode_output(name="output", payload=[text])],
        )
