"""The first step: text in, features out."""

import features
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class ExtractFeatures(MLModel):
    """Counts words of each text."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        texts = StringCodec.decode_input(payload.inputs[0])
        rows = [features.of(features.clean(text)) for text in texts]
        output = ResponseOutput(
            name="features",
            datatype="FP64",
            shape=[len(rows), len(features.NAMES)],
            data=[value for row in rows for value in row],
        )
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
