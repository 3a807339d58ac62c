"""The last step: probabilities in, label and score out."""

import sentiment
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class NameSentiment(MLModel):
    """Names the most probable class of each text."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        probabilities = payload.inputs[0]
        rows, columns = probabilities.shape
        values = list(probabilities.data)
        texts = [values[row * columns : (row + 1) * columns] for row in range(rows)]
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                StringCodec.encode_output("label", [sentiment.label(text) for text in texts]),
                ResponseOutput(
                    name="score", datatype="FP64", shape=[rows, 1], data=[sentiment.score(text) for text in texts]
                ),
            ],
        )
