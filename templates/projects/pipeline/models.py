"""A pipeline of steps, served as one model: text in, label and score out."""

import steps
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Pipeline(MLModel):
    """Runs all steps for each text."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        texts = self.decode(payload.inputs[0], default_codec=StringCodec)
        scores = [steps.classify(steps.features(steps.clean(text))) for text in texts]
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                StringCodec.encode_output("label", [steps.label(score) for score in scores]),
                ResponseOutput(name="score", datatype="FP64", shape=[len(scores), 1], data=scores),
            ],
        )
