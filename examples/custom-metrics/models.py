"""Custom metrics: one that is registered with a description, and one that is only logged."""

import mlserver
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class MeasuredSum(MLModel):
    """Adds numbers, and logs how many there were and how large they were."""

    async def load(self) -> bool:
        mlserver.register("example_values", "How many values a request had")
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        values = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        total = np.array([values.sum()])
        mlserver.log(example_values=values.size, example_total=float(total[0]))
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output("total", total)],
        )
