"""The echo as a model of MLServer, for the original and for this server."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    """Decodes its inputs into arrays, and encodes these as its outputs."""

    async def predict(self, payload):
        """Returns the rows of a request."""
        arrays = [self.decode(one, default_codec=NumpyCodec) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output("predict", one) for one in arrays]
        return InferenceResponse(model_name=self.name, outputs=outputs)
