"""The runtime of CatBoost's models."""

from typing import Tuple, Type

from mlserver import MLModel
from mlserver._frameworks import artifact, import_framework, loading, predict_only
from mlserver.types import InferenceRequest, InferenceResponse

__all__ = ["WELLKNOWN_MODEL_FILENAMES", "CatboostModel"]

_WELL_KNOWN_NAMES = WELLKNOWN_MODEL_FILENAMES = ["model.cbm", "model.bin"]


class CatboostModel(MLModel):
    """A classifier or another model, with only the output `predict`, regardless of the requested outputs."""

    #: The framework's exception for invalid data, once the framework is imported.
    _errors: Tuple[Type[Exception], ...] = ()

    async def load(self) -> bool:
        """Loads the artifact."""
        path = await artifact(self, _WELL_KNOWN_NAMES)
        catboost = import_framework("catboost", "catboost")
        self._errors = (catboost.CatBoostError,)
        with loading(path):
            self._model = catboost.CatBoostClassifier().load_model(path)
            if len(self._model.classes_) == 0:
                self._model = catboost.CatBoostRegressor().load_model(path)
        self.ready = True  # as in MLServer 1.x
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the output `predict`."""
        return predict_only(self, payload, self._model.predict, *self._errors)
