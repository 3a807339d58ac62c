"""The runtime of explainers of alibi."""

import os
from typing import Any, Dict

from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver._frameworks import import_framework, inference_errors, loading
from mlserver.codecs import NumpyRequestCodec, StringCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.handlers import custom_handler
from mlserver.rest import Response
from mlserver.types import InferenceRequest, InferenceResponse, Parameters
from mlserver.utils import get_model_uri, to_absolute_path

from .remote import RemoteModel
from .settings import EXPLAINER_KINDS, AlibiExplainSettings, get_explain_settings

__all__ = ["EXPLAIN_PARAMETERS_TAG", "AlibiExplainRuntime"]

#: The parameter of a request with arguments for the explainer's `explain`.
EXPLAIN_PARAMETERS_TAG = "explain_parameters"

_OUTPUT = "explanation"
_SCIKIT_LEARN = (".joblib", ".pickle", ".pkl")


class AlibiExplainRuntime(MLModel):
    """An explainer. The response contains the JSON of an explanation."""

    @blocking
    async def load(self) -> bool:
        """Creates or loads the explainer, once the model that it explains is ready."""
        self._explain_settings = get_explain_settings(self.settings)
        import_framework("alibi", "alibi")
        self._explainer = self._read(await self._source())
        self._headers = {
            "x-seldon-alibi-type": "explanation",
            "x-seldon-alibi-method": type(self._explainer).__module__.split(".")[-1],
        }
        return True

    async def _source(self) -> str:
        """Returns the folder of the saved explainer; empty if the settings contain the explainer's arguments."""
        return "" if self._explain_settings.init_parameters is not None else await get_model_uri(self.settings)

    def _read(self, source: str) -> Any:
        kind = EXPLAINER_KINDS[self._explain_settings.explainer_type]
        explainer = getattr(import_framework("alibi.explainers", "alibi"), kind.name)
        if kind.is_remote:
            model: Any = RemoteModel(self._explain_settings)
            model.wait()
        else:
            path = to_absolute_path(self.settings, self._explain_settings.infer_uri)
            # As in the original, the path may also be relative to the working directory.
            if not os.path.exists(path) and os.path.exists(self._explain_settings.infer_uri):
                path = self._explain_settings.infer_uri
            model = _read_model(path, self._explain_settings)
        with loading(source or f"`parameters.extra.init_parameters` of {kind.name}"):
            if self._explain_settings.init_parameters is not None:
                return explainer(model, **self._explain_settings.init_parameters)
            return import_framework("alibi.saving", "alibi").load_explainer(source, predictor=model)

    @blocking
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the explanation of the request's elements."""
        explanation = self._explain(payload)
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            parameters=Parameters(headers=dict(self._headers)),
            outputs=[StringCodec.encode_output(_OUTPUT, [explanation])],
        )

    @custom_handler(rest_path="/explain", rest_method="POST")
    @blocking
    async def explain(self, request: InferenceRequest) -> Response:
        """Returns only the JSON of the explanation."""
        return _Json(self._explain(request))

    def _explain(self, payload: InferenceRequest) -> str:
        arguments = getattr(payload.parameters, EXPLAIN_PARAMETERS_TAG, None) or {}
        if not isinstance(arguments, dict):
            raise InferenceError(f"invalid parameter `{EXPLAIN_PARAMETERS_TAG}`: expected an object")
        with inference_errors():
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
            return str(self._explained(data, arguments))

    def _explained(self, data: Any, arguments: Dict[str, Any]) -> str:
        import numpy

        if not self._explain_settings.explainer_batch:
            if len(data) == 0:
                raise InferenceError("the request has no element to explain")
            data = data.iloc[0].to_numpy() if hasattr(data, "iloc") else data[0]
        elif hasattr(data, "iloc"):
            data = data.to_numpy()
        if isinstance(data, numpy.str_):
            data = str(data)
        if isinstance(data, str) and self._explain_settings.explainer_type != "anchor_text":
            raise InferenceError(f"{type(self._explainer).__name__} explains numbers, but the request has text")
        return str(self._explainer.explain(data, **arguments).to_json())


class _Json(Response):
    """A response whose text is JSON already."""

    def render(self, content: Any) -> bytes:
        """Returns the text as UTF-8."""
        return str(content).encode()


def _read_model(path: str, settings: AlibiExplainSettings) -> Any:
    """Loads the model in a file or folder, for explainers that inspect it."""
    if not os.path.exists(path):
        raise MLServerError(f"`parameters.extra.infer_uri`: `{path}` does not exist", 422)
    with loading(path):
        if settings.explainer_type == "integrated_gradients":
            return import_framework("tensorflow", "tensorflow").keras.models.load_model(path)
        if path.endswith(_SCIKIT_LEARN):
            return import_framework("joblib", "joblib").load(path)
        booster = import_framework("xgboost", "xgboost").Booster()
        booster.load_model(path)
        return booster
