"""The runtime of detectors of alibi-detect: drift, outliers and adversarial data."""

import os
from typing import Any, Dict, List, Optional

import mlserver
from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver._frameworks import import_framework, loading, runtime_settings
from mlserver._legacy import missing_names
from mlserver.codecs import NumpyCodec, NumpyRequestCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.logging import logger
from mlserver.settings import BaseSettings
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, ResponseOutput
from mlserver.utils import get_model_uri

__all__ = ["ENV_PREFIX_ALIBI_DETECT_SETTINGS", "AlibiDetectRuntime", "AlibiDetectSettings"]

__getattr__ = missing_names(__name__)

ENV_PREFIX_ALIBI_DETECT_SETTINGS = "MLSERVER_MODEL_ALIBI_DETECT_"

_METRIC = "seldon_model_drift"
_STATE = "state"
#: The value of the header `x-seldon-alibi-type`, by the package of the detector.
_TYPES = {"cd": "drift", "od": "outlier", "ad": "adversarial"}
#: The exceptions that detectors raise for invalid data of a request.
_ERRORS = (ValueError, IndexError, TypeError, KeyError)


class AlibiDetectSettings(BaseSettings):
    """The settings of a detector."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_ALIBI_DETECT_SETTINGS

    #: Further arguments of the detector's `predict`.
    predict_parameters: Dict[str, Any] = {}
    #: How many requests are collected and passed to the detector together.
    batch_size: Optional[int] = None
    #: The state of an online detector is saved after this many rows.
    state_save_freq: int = 100


class AlibiDetectRuntime(MLModel):
    """A detector that `save_detector` has saved. The response has one output for each entry of the detector's result."""

    @blocking
    async def load(self) -> bool:
        """Loads the detector, and its state if it has one."""
        self._detect_settings = self._read_settings()
        uri = await get_model_uri(self.settings)
        saving = import_framework("alibi_detect.saving", "alibi-detect")
        try:
            with loading(uri):
                self._detector = saving.load_detector(uri)
        except MLServerError as error:
            message = f"Invalid configuration for model {self.name}: {error}"
            raise MLServerError(message, error.status_code) from error
        self._state = os.path.join(uri, _STATE)
        self._is_online = hasattr(self._detector, "save_state")
        self._steps = 0
        self._queued: List[Any] = []
        self._headers = {
            "x-seldon-alibi-type": _TYPES.get(type(self._detector).__module__.split(".")[1], "unknown"),
            "x-seldon-alibi-method": type(self._detector).__module__.split(".")[-1],
        }
        mlserver.register(_METRIC, "Drift that detectors found")
        return True

    def _read_settings(self) -> AlibiDetectSettings:
        parameters = self.settings.parameters
        extra = parameters.extra if parameters is not None else None
        own = runtime_settings(AlibiDetectSettings, extra or {})
        for name, value in (("batch_size", own.batch_size), ("state_save_freq", own.state_save_freq)):
            if value is not None and value < 1:
                raise MLServerError(f"`parameters.extra.{name}` is {value}, expected at least 1", 500)
        return own

    @blocking
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the detector's result, or a response without outputs while it collects more requests."""
        try:
            data = self.decode_request(payload, default_codec=NumpyRequestCodec)
        except _ERRORS as error:
            raise InferenceError(str(error) or type(error).__name__) from error
        outputs: Optional[Dict[str, List[Any]]]
        try:
            outputs = self._detect(data)
        except _ERRORS as error:
            logger.debug("A request was rejected.", exc_info=True)
            raise InferenceError(f"Invalid predict parameters for model {self.name}: {error}") from error
        if outputs is None:
            return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[])
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            parameters=Parameters(headers=dict(self._headers), **self._meta()),
            outputs=[_output(name, values) for name, values in outputs.items()],
        )

    def _meta(self) -> Dict[str, Any]:
        """Returns the metadata of the detector."""
        return {name: value for name, value in self._detector.meta.items() if value is not None}

    def _detect(self, data: Any) -> Optional[Dict[str, List[Any]]]:
        """Returns the detector's results by name: a list with one value for each call of the detector."""
        import numpy

        data = numpy.asarray(data)
        if self._is_online:
            found = [self._detect_row(row) for row in data]
        else:
            batch = self._collect_batch(data)
            if batch is None:
                return None
            found = [self._detector.predict(batch, **self._detect_settings.predict_parameters)["data"]]
        outputs: Dict[str, List[Any]] = {}
        for each in found:
            for name, value in each.items():
                outputs.setdefault(name, []).append(value)
        for value in outputs.get("is_drift", ()):
            for one in value if hasattr(value, "__iter__") else [value]:
                mlserver.log(**{_METRIC: float(one)})
        return outputs

    def _detect_row(self, row: Any) -> Any:
        """Passes one row to an online detector."""
        found = self._detector.predict(row, **self._detect_settings.predict_parameters)["data"]
        self._steps += 1
        if self._steps % self._detect_settings.state_save_freq == 0:
            try:
                self._detector.save_state(self._state)
            except OSError as error:  # for example in a read-only folder; the detector continues without saving
                logger.warning("Cannot save the state of the detector in `%s`: %s", self._state, error)
        return found

    def _collect_batch(self, data: Any) -> Any:
        """Returns the data of a complete batch of requests, or `None` while the batch is incomplete."""
        if self._detect_settings.batch_size is None or self._detect_settings.batch_size == 1:
            return data
        import numpy

        if self._queued and self._queued[0].shape[1:] != data.shape[1:]:
            expected, found = list(self._queued[0].shape[1:]), list(data.shape[1:])
            raise InferenceError(f"a row has the shape {found}, but {expected} in the other requests of its batch")
        self._queued.append(data)
        if len(self._queued) < self._detect_settings.batch_size:
            return None
        queued, self._queued = self._queued, []
        return numpy.concatenate(queued)


def _output(name: str, values: List[Any]) -> ResponseOutput:
    import numpy

    return NumpyCodec.encode_output(name, numpy.array(values))
