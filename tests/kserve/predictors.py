"""Predictors behind transformers: models of this server."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceResponse


class Seen(MLModel):
    """Returns the headers of the request."""

    async def predict(self, payload):
        found = sorted(f"{name}: {value}" for name, value in payload.parameters.headers.items())
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("seen", found)])


class Failing(MLModel):
    """Fails as it is asked to."""

    async def predict(self, payload):
        (action,) = StringCodec.decode_input(payload.inputs[0])
        if action == "invalid":
            raise InferenceError("the value is not valid")
        if action == "busy":
            raise MLServerError("no room", 503)
        raise ValueError("a fault of the model")


class Slow(MLModel):
    """Answers much later than anybody waits."""

    async def predict(self, payload):
        await asyncio.sleep(600)
