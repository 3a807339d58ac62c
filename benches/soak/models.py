"""Models of the soak test, which run in workers of the server."""

import os
from pathlib import Path
from typing import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Registered(MLModel):
    """Writes the name of its pool to a file with the number of its process, so that samples can name the worker."""

    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        (Path(extra["register"]) / str(os.getpid())).write_text(extra["pool"])
        return True

    def echo(self, payload: InferenceRequest) -> InferenceResponse:
        """Decodes all inputs into arrays, and encodes these as the outputs."""
        arrays = [(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output(name, one) for name, one in arrays]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)


class Echo(Registered):
    """Returns its inputs, computed on the event loop."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self.echo(payload)


class Plain(Registered):
    """Returns its inputs, computed on a thread."""

    def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self.echo(payload)


class Crash(Registered):
    """Ends its process if the first number is 13."""

    def predict(self, payload: InferenceRequest) -> InferenceResponse:
        if NumpyCodec.decode_input(payload.inputs[0]).flat[0] == 13:
            os._exit(3)
        return self.echo(payload)


class Words(Registered):
    """Streams a text word by word."""

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            for word in StringCodec.decode_input(payload.inputs[0])[0].split():
                outputs = [StringCodec.encode_output("output", [word])]
                yield InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)
