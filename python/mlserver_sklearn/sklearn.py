"""The runtime of scikit-learn estimators and pipelines."""

import sys
import typing
from typing import Any, Dict, List

from mlserver import MLModel
from mlserver._frameworks import (
    arranged,
    artifact,
    encode_array,
    has_named_columns,
    import_framework,
    inference_errors,
    lightgbm_features,
    loading,
)
from mlserver.codecs import NumpyRequestCodec, PandasCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, RequestOutput, ResponseOutput

__all__ = [
    "PREDICT_FN_KEY",
    "PREDICT_OUTPUT",
    "PREDICT_PROBA_OUTPUT",
    "PREDICT_TRANSFORM",
    "VALID_OUTPUTS",
    "WELLKNOWN_MODEL_FILENAMES",
    "SKLearnModel",
]

PREDICT_OUTPUT = "predict"
PREDICT_PROBA_OUTPUT = "predict_proba"
PREDICT_TRANSFORM = "transform"
#: The key in `parameters.extra` of the default output, for requests without requested outputs.
PREDICT_FN_KEY = "predict_fn"

_OUTPUTS = VALID_OUTPUTS = [PREDICT_OUTPUT, PREDICT_PROBA_OUTPUT, PREDICT_TRANSFORM]
_WELL_KNOWN_NAMES = WELLKNOWN_MODEL_FILENAMES = ["model.joblib", "model.pickle", "model.pkl", "model.skops"]
# The key in `parameters.extra` of the types that a skops file may contain besides those that skops trusts.
_SKOPS_TRUSTED_TYPES = "skops_trusted_types"


class SKLearnModel(MLModel):
    """Any object that joblib or skops can load and that has one of the outputs: `predict`, `predict_proba`, `transform`."""

    async def load(self) -> bool:
        """Loads the artifact."""
        path = await artifact(self, _WELL_KNOWN_NAMES)
        import_framework("sklearn", "scikit-learn")
        self._model = self._load_skops(path) if _is_archive(path) else _load_joblib(path)
        if not hasattr(self._model, self._default_output()):
            raise MLServerError(
                f"`parameters.extra.{PREDICT_FN_KEY}` is `{self._default_output()}`, "
                f"which {type(self._model)} of `{path}` does not have",
                500,
            )
        self._features = lightgbm_features(self._model)
        return True

    def _load_skops(self, path: str) -> Any:
        """Loads a skops file whose types skops or the settings trust. Raises `MLServerError` for others, and names them."""
        skops = import_framework("skops.io", "skops")
        trusted = self._extra().get(_SKOPS_TRUSTED_TYPES) or []
        with loading(path):
            untrusted = sorted(set(skops.get_untrusted_types(file=path)) - set(trusted))
        if untrusted:
            raise MLServerError(
                f"cannot load `{path}`: skops does not trust {', '.join(f'`{name}`' for name in untrusted)}; "
                f"if you do, add the names to `parameters.extra.{_SKOPS_TRUSTED_TYPES}` of the model's settings",
                500,
            )
        with loading(path):
            return skops.load(path, trusted=trusted)

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns one output for each requested one, or one for each column of a data frame."""
        requested = self._requested_outputs(payload)
        with inference_errors():
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
            data = arranged(self, data, self._features, has_named_columns(payload))
            outputs = self._predict_outputs(data, requested)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)

    def _requested_outputs(self, payload: InferenceRequest) -> List[RequestOutput]:
        """Returns the outputs to compute. Raises `InferenceError` if the model does not have one of them."""
        if not payload.outputs:
            return [RequestOutput(name=self._default_output())]
        for output in payload.outputs:
            if output.name not in _OUTPUTS:
                raise InferenceError(
                    "SKLearnModel only supports 'predict', 'predict_proba' and 'transform' as outputs"
                    f" ({output.name} was received)"
                )
            if not hasattr(self._model, output.name):
                # The original's text, including the unbalanced quote.
                raise InferenceError(f"{type(self._estimator())} models do not support '{output.name}")
        return payload.outputs

    def _estimator(self) -> Any:
        """Returns the model, or the last step of a pipeline."""
        steps = getattr(self._model, "steps", None)
        return steps[-1][1] if isinstance(steps, list) and steps else self._model

    def _default_output(self) -> str:
        return typing.cast(str, self._extra().get(PREDICT_FN_KEY, PREDICT_OUTPUT))

    def _extra(self) -> Dict[str, Any]:
        parameters = self.settings.parameters
        return (parameters.extra if parameters is not None else None) or {}

    def _predict_outputs(self, data: Any, outputs: List[RequestOutput]) -> List[ResponseOutput]:
        encoded = []
        for output in outputs:
            value = getattr(self._model, output.name)(data)
            if _is_frame(value):
                if len(outputs) > 1:
                    names = [each.name for each in outputs]
                    raise InferenceError(
                        f"{output.name} returned columnar data of type {type(value)} and {names} were"
                        " requested. Cannot encode multiple columnar data responses into one response."
                    )
                return PandasCodec.encode_outputs(value)
            encoded.append(encode_array(self, output, value))
        return encoded


def _is_archive(path: str) -> bool:
    """Returns whether a file is a zip archive, as those of skops are."""
    with loading(path), open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _load_joblib(path: str) -> Any:
    joblib = import_framework("joblib", "joblib")
    with loading(path):
        return joblib.load(path)


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)
