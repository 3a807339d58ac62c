"""A custom runtime: loads coefficients, and predicts values of a line with their uncertainty."""

import json

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri


class BayesianLine(MLModel):
    """A linear regression whose coefficients are samples from their posterior."""

    async def load(self) -> bool:
        uri = await get_model_uri(self._settings, wellknown_filenames=["posterior.json"])
        with open(uri, encoding="utf-8") as file:
            posterior = json.load(file)
        self._slopes = np.array(posterior["slope"])
        self._intercepts = np.array(posterior["intercept"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: self.decode(tensor, default_codec=NumpyCodec) for tensor in payload.inputs}
        if "x" not in inputs:
            raise InferenceError(f"expected an input `x`, got {', '.join(sorted(inputs)) or 'none'}")
        draws = np.outer(inputs["x"].ravel(), self._slopes) + self._intercepts
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                NumpyCodec.encode_output("mean", draws.mean(axis=1)),
                NumpyCodec.encode_output("deviation", draws.std(axis=1)),
            ],
        )
