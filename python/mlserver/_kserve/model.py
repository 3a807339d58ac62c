"""Base classes of models."""

import inspect
import time
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Optional, Union

from ..errors import MLServerError
from .constants.constants import EXPLAINER_BASE_URL_FORMAT, PredictorProtocol
from .context import get_predictor_config
from .errors import InvalidInput
from .inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from .logging import trace_logger
from .metrics import get_labels
from .predictor_config import PredictorConfig
from .protocol.infer_type import InferRequest, InferResponse
from .utils.inference_client_factory import InferenceClientFactory

__all__ = [
    "EXPLAINER_BASE_URL_FORMAT",
    "BaseKServeModel",
    "InferReturnType",
    "InferReturnValueTypes",
    "InferenceModel",
    "InferenceVerb",
    "Model",
    "PredictorConfig",
    "PredictorProtocol",
    "append_forwardable_headers",
    "get_labels",
    "get_latency_ms",
    "is_v2",
]

InferReturnValueTypes = Union[Dict[str, Any], InferResponse, List[str]]
InferReturnType = Union[InferReturnValueTypes, Awaitable[InferReturnValueTypes]]

#: Headers of a request that a transformer passes on to its predictor.
_FORWARDABLE_HEADERS = frozenset({"authorization", "x-request-id", "x-b3-traceid"})

#: The header with the number of requests that led to a request, and how many may.
_DEPTH_HEADER = "request-depth"
_MAX_DEPTH = 16

#: Called with `preprocess`, `predict`, `explain` or `postprocess`, the model's name, and the seconds that the step took.
_observe: Optional[Callable[[str, str, float], None]] = None


def append_forwardable_headers(
    headers: Optional[Dict[str, str]], base: Optional[Dict[str, str]] = None
) -> Dict[str, str]:
    """Returns `base` and those of the headers of a request that are passed on to the predictor."""
    forwarded = dict(base or {})
    for name, value in (headers or {}).items():
        if name.lower() in _FORWARDABLE_HEADERS:
            forwarded[name.lower()] = value
    return forwarded


def _sent_headers(headers: Optional[Dict[str, str]], base: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Returns the headers for another server, with the number of requests that led to it.

    Raises `MLServerError` if there are too many: servers that ask each other would do so without an end.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}.get(_DEPTH_HEADER, "")
    depth = (int(given) if given.isdecimal() and len(given) < 10 else 0) + 1
    if depth >= _MAX_DEPTH:
        raise MLServerError(f"models that call other models are nested more than {_MAX_DEPTH} levels deep", 508)
    return {**append_forwardable_headers(headers, base), _DEPTH_HEADER: str(depth)}


def get_latency_ms(start: float, end: float) -> float:
    """Returns the milliseconds between two times in seconds."""
    return (end - start) * 1000


def is_v2(protocol: PredictorProtocol) -> bool:
    """Whether a protocol is V2 over REST."""
    return protocol in (PredictorProtocol.REST_V2, PredictorProtocol.REST_V2.value)


class InferenceVerb(Enum):
    """What a request asks for."""

    EXPLAIN = 1
    PREDICT = 2


class BaseKServeModel(ABC):
    """What a server needs to know of a model."""

    @abstractmethod
    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = False
        self.engine = False

    async def healthy(self) -> bool:
        """Whether the model can answer requests."""
        return self.ready

    def load(self) -> bool:
        """Loads the model, and sets `ready`. For subclasses."""
        self.ready = True
        return self.ready

    def start(self) -> None:
        """Called when the server starts."""
        self.ready = True

    async def start_engine(self) -> None:  # noqa: B027
        """Starts the engine of a model whose `engine` is true. For subclasses."""

    def stop(self) -> None:
        """Called when the model is unloaded, or the server stops."""
        self.ready = False

    def stop_engine(self) -> None:  # noqa: B027
        """Stops the engine of a model whose `engine` is true. For subclasses."""


class InferenceModel(BaseKServeModel):
    """A model that answers requests for predictions."""

    @abstractmethod
    def __call__(
        self,
        body: Union[Dict[str, Any], InferRequest],
        headers: Optional[Dict[str, str]] = None,
        verb: InferenceVerb = InferenceVerb.PREDICT,
    ) -> Any:
        """Answers a request."""

    def get_input_types(self) -> List[Dict[str, Any]]:
        """Returns the name, datatype and shape of each input, for the model's metadata."""
        return []

    def get_output_types(self) -> List[Dict[str, Any]]:
        """Returns the name, datatype and shape of each output, for the model's metadata."""
        return []


class Model(InferenceModel):
    """A model that is loaded with `load`, and answers with `preprocess`, `predict` or `explain`, and `postprocess`.

    Each of the four may be a plain or an `async` method. Without a `predict` of its own, the model is a transformer, and asks
    the predictor of the server's `PredictorConfig`; without an `explain`, the host in `explainer_host`.
    """

    def __init__(self, name: str, return_response_headers: bool = False) -> None:
        super().__init__(name)
        self.explainer_host: Optional[str] = None
        self._http_client_instance: Any = None
        self._grpc_client_stub: Any = None
        self.enable_latency_logging = False
        self.required_response_headers = return_response_headers

    @property
    def predictor_config(self) -> Optional[PredictorConfig]:
        """The predictor of a transformer or explainer, if any."""
        return get_predictor_config()

    async def __call__(
        self,
        body: Any,
        headers: Optional[Dict[str, str]] = None,
        verb: InferenceVerb = InferenceVerb.PREDICT,
    ) -> Any:
        """Returns the answer to a request, and the headers to send with it."""
        response_headers: Dict[str, str] = {}
        # Models need not have the parameter unless they ask for it.
        more = (response_headers,) if self.required_response_headers else ()
        times: Dict[str, float] = {}

        payload = await self._step("preprocess", times, self.preprocess, body, headers)
        payload = self.validate(payload)
        if verb is InferenceVerb.EXPLAIN:
            result = await self._step("explain", times, self.explain, payload, headers)
        elif verb is InferenceVerb.PREDICT:
            result = await self._step("predict", times, self.predict, payload, headers, *more)
        else:
            raise NotImplementedError
        result = await self._step("postprocess", times, self.postprocess, result, headers, *more)

        if self.enable_latency_logging:
            steps = ("preprocess", "explain", "predict", "postprocess")
            trace_logger.info(
                "requestId: %s, %s",
                (headers or {}).get("x-request-id", "N.A."),
                ", ".join(f"{step}_ms: {round(times.get(step, 0) * 1000, 9)}" for step in steps),
            )
        return result, response_headers

    async def _step(self, step: str, times: Dict[str, float], method: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            result = method(*arguments)
            return await result if inspect.isawaitable(result) else result
        finally:
            times[step] = time.perf_counter() - start
            if _observe is not None:
                _observe(step, self.name, times[step])

    def validate(self, payload: Any) -> Any:
        """Returns what `preprocess` returned, if the predictor will accept it."""
        config = self.predictor_config
        if config is None or not isinstance(payload, dict):
            return payload
        field = {"v1": "instances", "v2": "inputs"}.get(config.predictor_protocol)
        if field in payload and not isinstance(payload[field], list):
            raise InvalidInput(f'Expected "{field}" to be a list')
        return payload

    def load(self) -> bool:
        """Loads the model, and sets `ready`. For subclasses."""
        self.ready = True
        return self.ready

    async def preprocess(self, payload: Any, headers: Optional[Dict[str, str]] = None) -> Any:
        """Returns what `predict` or `explain` is called with. For subclasses."""
        return payload

    async def postprocess(
        self,
        result: Any,
        headers: Optional[Dict[str, str]] = None,
        response_headers: Optional[Dict[str, str]] = None,
    ) -> Any:
        """Returns the answer. For subclasses."""
        return result

    async def predict(
        self,
        payload: Any,
        headers: Optional[Dict[str, str]] = None,
        response_headers: Optional[Dict[str, str]] = None,
    ) -> Union[Dict[str, Any], InferResponse, AsyncIterator[Any]]:
        """Returns the prediction: by default, that of the predictor. For subclasses."""
        config = self.predictor_config
        if config is None or not config.predictor_host:
            raise NotImplementedError("Could not find PredictorConfig.")
        if config.predictor_protocol == PredictorProtocol.GRPC_V2.value:
            return await self._grpc_predict(payload, headers)
        return await self._http_predict(payload, headers, response_headers)

    async def explain(self, payload: Any, headers: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
        """Returns the explanation: by default, that of the host in `explainer_host`. For subclasses."""
        if self.explainer_host is None:
            raise NotImplementedError("Could not find explainer_host.")
        config = self.predictor_config
        use_ssl = getattr(self, "use_ssl", config is not None and config.use_ssl)
        answer: Dict[str, Any] = await self._http_client.explain(
            EXPLAINER_BASE_URL_FORMAT.format("https" if use_ssl else "http", self.explainer_host),
            model_name=self.name,
            data=payload,
            headers=_sent_headers(headers),
        )
        return answer

    @property
    def _http_client(self) -> InferenceRESTClient:
        if self._http_client_instance is None:
            config = self.predictor_config
            rest = RESTConfig(retries=0, timeout=600)
            if config is not None:
                rest = RESTConfig(protocol=config.protocol, timeout=config.timeout, retries=config.retries)
            self._http_client_instance = InferenceClientFactory().get_rest_client(rest)
        client: InferenceRESTClient = self._http_client_instance
        return client

    @property
    def _grpc_client(self) -> InferenceGRPCClient:
        if self._grpc_client_stub is None:
            config = self.predictor_config
            if config is None:
                raise NotImplementedError("Could not find PredictorConfig.")
            self._grpc_client_stub = InferenceClientFactory().get_grpc_client(
                config.predictor_host, use_ssl=config.use_ssl, timeout=config.timeout, retries=config.retries
            )
        client: InferenceGRPCClient = self._grpc_client_stub
        return client

    async def _predictor_is_ready(self) -> bool:
        """Whether the predictor is ready, if it is to be asked. A transformer is ready only when it is."""
        config = self.predictor_config
        if config is None or not config.predictor_host or not config.predictor_health_check:
            return True
        try:
            if config.predictor_protocol == PredictorProtocol.GRPC_V2.value:
                return await self._grpc_client.is_model_ready(self.name)
            return await self._http_client.is_model_ready(config.predictor_base_url, self.name)
        except Exception as error:
            trace_logger.warning("The predictor of %s at %s is not ready: %s", self.name, config.predictor_host, error)
            return False

    async def _http_predict(
        self,
        payload: Any,
        headers: Optional[Dict[str, str]] = None,
        response_headers: Optional[Dict[str, str]] = None,
    ) -> Union[Dict[str, Any], InferResponse]:
        config = self.predictor_config
        assert config is not None, "`predict` checks it"
        return await self._http_client.infer(
            config.predictor_base_url,
            model_name=self.name,
            data=payload,
            headers=_sent_headers(headers, {"content-type": "application/json"}),
            response_headers=response_headers,
        )

    async def _grpc_predict(self, payload: Any, headers: Optional[Dict[str, str]] = None) -> InferResponse:
        metadata = list(_sent_headers(headers).items())
        return await self._grpc_client.infer(payload, headers=metadata)
