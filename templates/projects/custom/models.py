"""A custom model: `load` runs once, `predict` for each request."""

import json

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri


class Line(MLModel):
    """Returns `slope * x + intercept`."""

    async def load(self) -> bool:
        path = await get_model_uri(self._settings, wellknown_filenames=["line.json"])
        with open(path, encoding="utf-8") as file:
            line = json.load(file)
        self._slope = np.float64(line["slope"])
        self._intercept = np.float64(line["intercept"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: self.decode(tensor, default_codec=NumpyCodec) for tensor in payload.inputs}
        if "x" not in inputs:
            raise InferenceError(f"expected an input `x`, got {', '.join(sorted(inputs)) or 'none'}")
        y = self._slope * inputs["x"] + self._intercept
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output("y", y)],
        )
