"""The runtime of LightGBM's boosters."""

from typing import Tuple, Type

from mlserver import MLModel
from mlserver._frameworks import artifact, import_framework, loading, predict_only
from mlserver.types import InferenceRequest, InferenceResponse

__all__ = ["WELLKNOWN_MODEL_FILENAMES", "LightGBMModel"]

_WELL_KNOWN_NAMES = WELLKNOWN_MODEL_FILENAMES = ["model.bst"]


class LightGBMModel(MLModel):
    """A booster, with only the output `predict`, regardless of the requested outputs."""

    #: The framework's exception for invalid data, once the framework is imported.
    _errors: Tuple[Type[Exception], ...] = ()

    async def load(self) -> bool:
        """Loads the artifact."""
        path = await artifact(self, _WELL_KNOWN_NAMES)
        lightgbm = import_framework("lightgbm", "lightgbm")
        self._errors = (lightgbm.basic.LightGBMError,)
        with loading(path):
            self._model = lightgbm.Booster(model_file=path)
        self._features = self._model.feature_name()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the output `predict`."""
        return predict_only(self, payload, self._model.predict, *self._errors, features=self._features)
