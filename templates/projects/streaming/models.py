"""A text model that streams its answer."""

import asyncio
from typing import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Words(MLModel):
    """Returns the words of the request in reverse order: in one response, or as a stream."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self._response(" ".join(self._words(payload)))

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            for word in self._words(payload):
                # Replace this by the computation of the next token.
                await asyncio.sleep(0.01)
                yield self._response(word)

    def _words(self, payload: InferenceRequest) -> list:
        text = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
        return text.split()[::-1]

    def _response(self, text: str) -> InferenceResponse:
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[StringCodec.encode_output("text", [text])],
        )
