"""The runtime of XGBoost models, using the library's scikit-learn wrapper."""

from typing import Any, List

from mlserver import MLModel
from mlserver._frameworks import artifact, encode_array, import_framework, inference_errors, loading
from mlserver.codecs import NumpyRequestCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, RequestOutput

__all__ = ["PREDICT_OUTPUT", "PREDICT_PROBA_OUTPUT", "VALID_OUTPUTS", "WELLKNOWN_MODEL_FILENAMES", "XGBoostModel"]

PREDICT_OUTPUT = "predict"
PREDICT_PROBA_OUTPUT = "predict_proba"
VALID_OUTPUTS = [PREDICT_OUTPUT, PREDICT_PROBA_OUTPUT]
WELLKNOWN_MODEL_FILENAMES = ["model.bst", "model.json", "model.ubj"]

#: The wrappers in the order in which they are tried. Each raises `TypeError` for the file of another one.
_WRAPPERS = ("XGBRegressor", "XGBClassifier", "XGBRanker")


class XGBoostModel(MLModel):
    """A regressor, classifier or ranker, with the output `predict`. Classifiers also have `predict_proba`."""

    async def load(self) -> bool:
        """Loads the artifact."""
        path = await artifact(self, WELLKNOWN_MODEL_FILENAMES)
        xgboost = import_framework("xgboost", "xgboost")
        # Without this check, XGBoost raises an error in its wrapper.
        import_framework("sklearn", "scikit-learn")
        with loading(path):
            self._model = _read(xgboost, path)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns one output for each requested one."""
        requested = self._requested_outputs(payload)
        with inference_errors():
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
            outputs = [encode_array(self, output, getattr(self._model, output.name)(data)) for output in requested]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)

    def _requested_outputs(self, payload: InferenceRequest) -> List[RequestOutput]:
        """Returns the outputs to compute. Raises `InferenceError` if the model does not have one of them."""
        for output in payload.outputs or ():
            if output.name not in (PREDICT_OUTPUT, PREDICT_PROBA_OUTPUT):
                raise InferenceError(
                    "XGBoostModel only supports 'predict' and 'predict_proba' as outputs"
                    f" ({output.name} was received)"
                )
            if not hasattr(self._model, output.name):
                # The original's text, including the unbalanced quote.
                raise InferenceError(f"{type(self._model).__name__} models do not support '{output.name}")
        return payload.outputs or [RequestOutput(name=PREDICT_OUTPUT)]


def _read(xgboost: Any, path: str) -> Any:
    """Returns a model of the wrapper that can load the file."""
    for name in _WRAPPERS:
        model = getattr(xgboost, name)()
        try:
            model.load_model(path)
        except TypeError:
            if name == _WRAPPERS[-1]:
                raise
        else:
            return model
    return None
