"""The runtime of CatBoost's models."""

from mlserver import MLModel
from mlserver._frameworks import artefact, encode_array, import_framework, loading, refusing
from mlserver.codecs import NumpyRequestCodec
from mlserver.types import InferenceRequest, InferenceResponse, RequestOutput

__all__ = ["PREDICT_OUTPUT", "CatboostModel"]

PREDICT_OUTPUT = "predict"

_WELL_KNOWN_NAMES = ["model.cbm", "model.bin"]


class CatboostModel(MLModel):
    """A classifier, or what has no classes, with the one output `predict`, whatever a request asks for."""

    async def load(self) -> bool:
        """Reads the artefact."""
        path = await artefact(self, _WELL_KNOWN_NAMES)
        catboost = import_framework("catboost", "catboost")
        self._error = catboost.CatBoostError
        with loading(path):
            self._model = catboost.CatBoostClassifier().load_model(path)
            if len(self._model.classes_) == 0:
                self._model = catboost.CatBoostRegressor().load_model(path)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers with the output `predict`."""
        with refusing(self._error):
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
            output = encode_array(self, RequestOutput(name=PREDICT_OUTPUT), self._model.predict(data))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
