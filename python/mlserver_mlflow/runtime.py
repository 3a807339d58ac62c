"""The runtime of MLflow models.

MLflow's own code handles its protocol, so that the answers are those of the installed version of MLflow.
"""

import json
import os
import threading
from codecs import BOM_UTF8
from contextvars import ContextVar, copy_context
from typing import Any, Callable, Dict, List, Optional, Tuple

from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver._frameworks import (
    arranged,
    has_named_columns,
    import_framework,
    inference_errors,
    lightgbm_features,
    loading,
)
from mlserver.codecs import PandasCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.handlers import custom_handler
from mlserver.logging import logger
from mlserver.rest import Request, Response
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri

from .metadata import DefaultInputPrefix, DefaultOutputPrefix, to_metadata_tensors, to_model_content_type
from .outputs import encode

__all__ = ["MLflowRuntime"]

#: The variable with the timeout of `/invocations`, in seconds. Unlike in MLflow's server, there is no default timeout.
_TIMEOUT = "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"


#: Whether the client of the current request has named its columns.
_columns_are_named: "ContextVar[bool]" = ContextVar("columns_are_named", default=False)


class _ByName:
    """A model of LightGBM whose columns are found by name."""

    def __init__(self, model: MLModel, found: Any, features: List[str]) -> None:
        self._runtime, self._found, self._features = model, found, features

    def predict(self, data: Any, *arguments: Any, **options: Any) -> Any:
        """Returns the model's prediction. Raises `InferenceError` if the data has other columns."""
        data = arranged(self._runtime, data, self._features, _columns_are_named.get())
        return self._found.predict(data, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


class MLflowRuntime(MLModel):
    """A model in a folder with an `MLmodel`, or at a URI that MLflow resolves."""

    @blocking
    async def load(self) -> bool:
        """Loads the model, and applies its signature."""
        uri = await get_model_uri(self.settings)
        self._mlflow = import_framework("mlflow", "mlflow")
        self._scoring = import_framework("mlflow.pyfunc.scoring_server", "mlflow")
        self._mlflow_error = import_framework("mlflow.exceptions", "mlflow").MlflowException
        if not hasattr(self._scoring, "invocations"):
            raise MLServerError(f"MLflow {self._mlflow.__version__} is too old: expected 2.6 or later", 500)
        # Some flavors behave differently while they serve.
        os.environ["_MLFLOW_IS_IN_SERVING_ENVIRONMENT"] = "true"
        with loading(uri):
            # Older versions have no configuration of models.
            read = getattr(self._scoring, "load_model_with_mlflow_config", None) or self._mlflow.pyfunc.load_model
            self._model = read(uri)
        self._apply_signature()
        self._arrange_columns()
        return True

    def _arrange_columns(self) -> None:
        """Has columns found by name if neither a signature nor the library does that."""
        if self._model.metadata.get_input_schema() is not None:
            return
        implementation = getattr(self._model, "_model_impl", None)
        for name in ("lgb_model", "sklearn_model"):
            found = getattr(implementation, name, None)
            features = None if found is None else lightgbm_features(found)
            if features is not None:
                setattr(implementation, name, _ByName(self, found, features))

    def _apply_signature(self) -> None:
        signature = self._model.metadata.signature
        if signature is None:
            return
        parameters = self.settings.parameters or ModelParameters()
        if self.inputs or self.outputs or parameters.content_type:
            logger.warning("The model's signature overrides the inputs, outputs and content type of its settings.")
        if signature.inputs is not None:
            self.inputs = to_metadata_tensors(signature.inputs, DefaultInputPrefix)
            parameters.content_type = to_model_content_type(signature.inputs)
            self.settings.parameters = parameters
        if signature.outputs is not None:
            self.outputs = to_metadata_tensors(signature.outputs, DefaultOutputPrefix)

    @blocking
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the model's prediction. Unknown parameters of the request are the model's params."""
        try:
            with inference_errors():
                data = self._decoded(payload)
                _columns_are_named.set(has_named_columns(payload))
                returned = self._model.predict(data, _params(payload))
        except self._mlflow_error as error:
            if error.get_http_status_code() >= 500:
                raise
            raise InferenceError(error.message) from error
        return encode(self, returned)

    def _decoded(self, payload: InferenceRequest) -> Any:
        """Decodes the model's input. Columns of lists and objects are JSON even if the request has no content type."""
        for tensor in payload.inputs:
            declared = self._inputs_index.get(tensor.name)
            if declared is None or declared.parameters is None:
                continue
            if declared.parameters.content_type == PandasCodec.JsonContentType and tensor.parameters is None:
                tensor.parameters = declared.parameters
        return self.decode_request(payload)

    @custom_handler(rest_path="/ping", rest_method="GET")
    async def ping(self) -> Response:
        """Reports that the model is loaded."""
        return _Raw("\n")

    @custom_handler(rest_path="/health", rest_method="GET")
    async def health(self) -> Response:
        """Reports that the model is loaded."""
        return _Raw("\n")

    @custom_handler(rest_path="/version", rest_method="GET")
    async def mlflow_version(self) -> Response:
        """Returns the version of MLflow."""
        return _Raw(self._mlflow.__version__)

    @custom_handler(rest_path="/invocations", rest_method="POST")
    @blocking
    async def invocations(self, request: Request) -> Response:
        """Answers a request in MLflow's protocol."""
        body, content_type = _as_documented(await request.body(), request.headers.get("content-type", ""))
        _columns_are_named.set(True)
        schema = self._model.metadata.get_input_schema()
        try:
            found = _run_for(_timeout(), lambda: self._scoring.invocations(body, content_type, self._model, schema))
        except TimeoutError:
            return _Raw("Request processing time exceeded limit", 504)
        except self._mlflow_error as error:
            return self._error_response(error)
        except (UnicodeDecodeError, RecursionError) as error:
            # Caused by the body, because MLflow has converted any exception of the model.
            message = f"Invalid input. It cannot be read: {error}"
            return self._error_response(self._mlflow_error.invalid_parameter_value(message))
        return _Raw(found.response, found.status, media_type=found.mimetype)

    def _error_response(self, error: Any) -> Response:
        """Returns MLflow's answer for an error, without the traceback, which is only logged."""
        logger.info("A call of /invocations failed: %s", error, exc_info=error)
        body: Dict[str, Any] = json.loads(error.serialize_as_json())
        body.pop("stack_trace", None)
        return _Raw(json.dumps(body), error.get_http_status_code())


class _Raw(Response):
    """A response whose text is sent without conversion."""

    def render(self, content: Any) -> bytes:
        """Returns the text as UTF-8."""
        return str(content).encode()


def _as_documented(body: bytes, content_type: str) -> Tuple[bytes, str]:
    """Returns a body and its content type in the forms that MLflow's server reads, for those that its documents send.

    These are an empty parameter after `;`, `application/csv`, and a list of objects, which are records.
    """
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    content_type = "; ".join(["text/csv" if kind == "application/csv" else kind, *filter(None, parameters)])
    text = body[len(BOM_UTF8) :] if body.startswith(BOM_UTF8) else body
    if kind == "application/json" and text.lstrip().startswith(b"["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            # MLflow answers with the reason.
            return body, content_type
        if items and all(isinstance(item, dict) for item in items):
            body = b'{"dataframe_records": ' + text + b"}"
    return body, content_type


def _params(payload: InferenceRequest) -> Optional[Dict[str, Any]]:
    """Returns the parameters of a request that are not part of the protocol, or `None` if there are none."""
    if payload.parameters is None:
        return None
    values = {name: value for name, value in (payload.parameters.model_extra or {}).items() if name != "named_columns"}
    return values or None


def _run_for(seconds: Optional[float], function: Callable[[], Any]) -> Any:
    """Returns the result of a function. Raises `TimeoutError` if it takes longer than `seconds`, and lets it go on."""
    if seconds is None:
        return function()
    results: List[Any] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


def _timeout() -> Optional[float]:
    """Returns the timeout in the environment, if it is set. MLflow has already rejected values that are not numbers."""
    seconds = os.environ.get(_TIMEOUT)
    return float(seconds) if seconds else None
