"""The runtime of LightGBM's boosters."""

from mlserver import MLModel
from mlserver._frameworks import artefact, encode_array, import_framework, loading, refusing
from mlserver.codecs import NumpyRequestCodec
from mlserver.types import InferenceRequest, InferenceResponse, RequestOutput

__all__ = ["PREDICT_OUTPUT", "LightGBMModel"]

PREDICT_OUTPUT = "predict"

_WELL_KNOWN_NAMES = ["model.bst"]


class LightGBMModel(MLModel):
    """A booster, with the one output `predict`, whatever a request asks for."""

    async def load(self) -> bool:
        """Reads the artefact."""
        path = await artefact(self, _WELL_KNOWN_NAMES)
        lightgbm = import_framework("lightgbm", "lightgbm")
        self._error = lightgbm.basic.LightGBMError
        with loading(path):
            self._model = lightgbm.Booster(model_file=path)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers with the output `predict`."""
        with refusing(self._error):
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
            output = encode_array(self, RequestOutput(name=PREDICT_OUTPUT), self._model.predict(data))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
