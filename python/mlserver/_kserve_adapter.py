"""Runs classes that extend KServe's `Model`, of the real package or of ours, as models of the worker."""

import contextlib
import importlib
import inspect
import json
import os
import sys
import threading
from time import perf_counter
from types import CoroutineType
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Tuple,
    Type,
)

from . import metrics
from ._model import jsonable
from ._payload import inference_response, tensor_output, wire_parameters
from ._tensor import FixedElements
from ._worker.failures import is_http_exception
from .errors import MLServerError
from .model import MLModel
from .settings import ModelSettings
from .types import InferenceRequest, InferenceResponse, MetadataModelResponse, MetadataTensor, Parameters

Pairs = List[Tuple[str, str]]
Body = Any

_JSON: Pairs = [("content-type", "application/json")]

#: The statuses of KServe's exceptions. `NotImplementedError` is one of Python.
_STATUSES = {
    "InferenceError": 500,
    "InvalidInput": 400,
    "ModelNotFound": 404,
    "ModelNotReady": 503,
    "NoModelReady": 503,
    "ServerNotLive": 503,
    "ServerNotReady": 503,
    "UnsupportedProtocol": 501,
}

#: The names of KServe's histograms in its package.
_HISTOGRAMS = {
    "preprocess": "PRE_HIST_TIME",
    "predict": "PREDICT_HIST_TIME",
    "explain": "EXPLAIN_HIST_TIME",
    "postprocess": "POST_HIST_TIME",
}

#: The most bytes of a streamed answer that are collected for a client that does not stream.
_MAX_COLLECTED = 64 << 20

#: The media types of bodies that are JSON and do not say so: the last one is curl's default.
_JSON_TYPES = ("application/octet-stream", "application/x-www-form-urlencoded")

#: The attributes that make a request of V1 a CloudEvent in binary mode.
_EVENT = ("ce-specversion", "ce-id", "ce-source", "ce-type")


#: Headers of a predictor's response that concern only its own connection and body.
_FRAMING = (
    "connection",
    "content-encoding",
    "content-length",
    "date",
    "inference-header-content-length",
    "keep-alive",
    "server",
    "transfer-encoding",
)


#: Status, headers and body of the response to a request of V1.
Reply = Tuple[int, Pairs, bytes]


class V1Handler(NamedTuple):
    """A route of V1. Unlike a custom handler, it gets the body as it is, and has no declared arguments."""

    name: str
    path: str
    #: "predict" or "explain".
    v1: str
    #: Called with the head of the `call` frame and its body.
    respond: Callable[[Tuple[Dict[str, Any], Any]], Any]
    is_async: bool
    method: str = "POST"


class _Package:
    """The modules of the `kserve` package that a class extends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = self._module("context")
        self.metrics = self._module("metrics")
        self.model: Any = self._module("model")
        self.infer_type: Any = self._module("protocol.infer_type")
        self.lazy_input = _lazy_input(self.infer_type.InferInput)
        self.request = _binary_request(self.infer_type.InferRequest)

    def _module(self, name: str) -> Any:
        try:
            return importlib.import_module(f"{self.name}.{name}")
        except ImportError:  # older versions have fewer modules
            return None


_packages: Dict[str, _Package] = {}


def package_of(cls: Type[Any]) -> Optional[str]:
    """Returns the name of the package whose base class a class extends, or `None`."""
    for base in cls.__mro__:
        if base.__name__ in ("BaseKServeModel", "Model") and base.__module__ in (
            "kserve.model",
            "mlserver._kserve.model",
        ):
            return base.__module__.rpartition(".")[0]
    return None


def is_kserve_class(cls: Any) -> bool:
    """Returns whether a class extends a base class of KServe."""
    return isinstance(cls, type) and package_of(cls) is not None


def adapt(settings: ModelSettings, cls: Type[Any]) -> "KServeModel":
    """Creates an instance of a class of KServe, and returns the model of the worker that runs it."""
    return wrap(settings, _instance_of(cls, settings))


def wrap(settings: ModelSettings, instance: Any, predictor: Any = None) -> "KServeModel":
    """Returns the model of the worker that runs an instance. `predictor` is its `PredictorConfig`, if it has one."""
    streams = any(map(_returns_iterator, (getattr(instance, "predict", None), type(instance).__dict__.get("__call__"))))
    return (StreamingKServeModel if streams else KServeModel)(instance, settings, predictor)


def _instance_of(cls: Type[Any], settings: ModelSettings) -> Any:
    """Creates an instance: the name is that of the model, other arguments come from `parameters.extra`."""
    extra = _extra(settings)
    parameters = list(inspect.signature(cls).parameters.values())
    names = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    arguments = {name: value for name, value in extra.items() if name in names and name != "name"}
    if "name" in names:
        return cls(name=settings.name, **arguments)
    first = parameters[0] if parameters else None
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD, first.VAR_POSITIONAL):
        arguments.pop(first.name, None)
        return cls(settings.name, **arguments)
    return cls(**arguments)


def _extra(settings: ModelSettings) -> Dict[str, Any]:
    return (settings.parameters.extra if settings.parameters is not None else None) or {}


def _returns_iterator(function: Any) -> bool:
    """Returns whether a function is a generator, or is annotated with an iterator."""
    if function is None:
        return False
    original = inspect.unwrap(function)
    if inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original):
        return True
    returned = getattr(original, "__annotations__", {}).get("return")
    module = getattr(inspect.getmodule(original), "__name__", "")
    if module in ("kserve.model", "mlserver._kserve.model"):
        return False
    return "Iterator" in str(returned) or "Generator" in str(returned)


class _Step(NamedTuple):
    """One step of a request."""

    function: Callable[..., Any]
    is_async: bool
    #: How many of payload, headers and response headers it takes.
    arity: int


class _Pipeline:
    """The steps of `:predict` or `:explain`."""

    def __init__(self, model: Any, package: _Package, main: str) -> None:
        self.before = _step(model, "preprocess", package, 2)
        count = 3 if getattr(model, "required_response_headers", False) else 2
        self.main = _step(model, main, package, count if main == "predict" else 2, is_optional=False)
        self.after = _step(model, "postprocess", package, count)
        self.is_async = any(step is not None and step.is_async for step in (self.before, self.main, self.after))


def _step(model: Any, name: str, package: _Package, count: int, is_optional: bool = True) -> Optional[_Step]:
    """Returns a step; `None` if it is that of the base class, which returns its argument."""
    function = getattr(model, name, None)
    if function is None:
        return None
    if is_optional and _is_default(model, name):
        return None
    original = inspect.unwrap(function)
    is_async = inspect.iscoroutinefunction(original) or inspect.isasyncgenfunction(original)
    return _Step(function, is_async, _arity(function, count))


def _is_default(model: Any, name: str) -> bool:
    """Returns whether a method is that of KServe's base classes."""
    if name in getattr(model, "__dict__", {}):
        return False
    owner = next((base for base in type(model).__mro__ if name in base.__dict__), None)
    return owner is not None and owner.__module__ in ("kserve.model", "mlserver._kserve.model")


def _arity(function: Callable[..., Any], most: int) -> int:
    """Returns how many positional arguments a function takes, up to `most`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return most
    count = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return most
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            count += 1
    return min(max(count, 1), most)


class KServeModel(MLModel):
    """A model of the worker that calls an instance of KServe's `BaseKServeModel`."""

    def __init__(self, model: Any, settings: ModelSettings, predictor: Any = None) -> None:
        super().__init__(settings)
        name = package_of(type(model))
        if name is None:
            raise TypeError(f"`{type(model).__qualname__}` does not extend `kserve.model.BaseKServeModel`")
        package = _packages.get(name)
        if package is None:
            package = _packages[name] = _Package(name)
        self._package = package
        #: The instance of the user's class.
        self.model = model
        if getattr(model, "name", None) != settings.name:
            with contextlib.suppress(AttributeError):
                model.name = settings.name
        self._predictor = predictor if predictor is not None else _predictor(settings, package, model)
        explainer = _extra(settings).get("explainer_host")
        if explainer is not None:
            model.explainer_host = explainer
        self._run_plain: Callable[[Callable[[], Any]], Awaitable[Any]] = _call
        self._threads = threading.local()
        #: The event loops of the model's threads.
        self._loops: List[Any] = []
        self._histograms: List[Any] = []
        #: The model's own `__call__`, unless it is that of the base class.
        self._call: Optional[Callable[..., Any]] = None
        if not callable(model):
            raise TypeError(f"`{type(model).__qualname__}` has neither `predict` nor `__call__`: extend `kserve.Model`")
        if not _is_default(model, "__call__"):
            self._call = model
            function = inspect.unwrap(type(model).__call__)
            is_coroutine = inspect.iscoroutinefunction(function)
            # Its steps may be plain functions, which would block the event loop.
            has_plain = any(
                hasattr(model, each) and not inspect.iscoroutinefunction(inspect.unwrap(getattr(model, each)))
                for each in ("preprocess", "predict", "postprocess", "explain")
            )
            self._is_driven = is_coroutine and has_plain
            self._call_arity = _arity(model, 3)
            predict_is_async = explain_is_async = is_coroutine and not has_plain
        else:
            self._pipelines = {name: _Pipeline(model, package, name) for name in ("predict", "explain")}
            predict_is_async = self._pipelines["predict"].is_async
            explain_is_async = self._pipelines["explain"].is_async and not self._lacks_explainer()
        if predict_is_async:
            self.predict = self._predict_async  # type: ignore[method-assign]
        else:
            self.predict = self._predict_plain  # type: ignore[method-assign,assignment]
        self._predict_is_async = predict_is_async
        respond = (self._respond_plain, self._respond_async)
        self._handlers = [
            V1Handler(f"v1:{name}", f"/v1/models/{{model_name}}:{name}", name, respond[is_async], is_async)
            for name, is_async in (("predict", predict_is_async), ("explain", explain_is_async))
        ]

    def _v1_handlers(self) -> List[V1Handler]:
        """Returns what answers requests of V1."""
        return self._handlers

    def bind(self, run_plain: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Runs plain functions of models with coroutines with `run_plain`, so that they do not block the event loop."""
        self._run_plain = run_plain

    # Loading

    async def load(self) -> bool:
        model = self.model
        self._set_context()
        if self._call is None:
            self._histograms = [self._histogram(step) for step in ("preprocess", "predict", "explain", "postprocess")]
        await self._connect()
        # A model that its constructor has loaded is ready already.
        if not model.ready:
            loaded = await self._either(model.load)
            if loaded is False:
                model.ready = False
            elif loaded is True:
                model.ready = True
        if model.ready:
            if not _is_default(model, "start"):
                await self._either(model.start)
                if inspect.iscoroutinefunction(getattr(model, "start", None)):
                    model.ready = True
            if getattr(model, "engine", False):
                await self._either(model.start_engine)
        ready = bool(model.ready)
        if ready and hasattr(model, "healthy") and not _is_default(model, "healthy"):
            ready = bool(await self._either(model.healthy))
        return ready

    def _histogram(self, step: str) -> Any:
        """Returns what observes the seconds of a step: KServe's own histogram if its package is installed, else ours."""
        own = getattr(self._package.metrics, _HISTOGRAMS[step], None)
        if own is not None:
            return own.labels(**self._package.metrics.get_labels(self.name))
        found = metrics.register(f"request_{step}_seconds", f"Seconds in `{step}` of models of KServe")
        return found.labels(self.name, self.version or "")

    async def _connect(self) -> None:
        """Prepares the clients of the predictor and the explainer."""
        model, config = self.model, self._predictor
        if config is None or not hasattr(model, "_http_client_instance"):
            return
        has_host = bool(config.predictor_host)
        if self._package.name == "kserve" and (has_host or getattr(model, "explainer_host", None)):
            # The real package shares its clients between all models of a process, whose predictors differ.
            client = importlib.import_module("kserve.inference_client")
            if config.protocol != "grpc-v2":
                authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
                rest = client.RESTConfig(
                    protocol=config.protocol, timeout=config.timeout, retries=config.retries, verify=authorities
                )
                model._http_client_instance = client.InferenceRESTClient(rest)
            if not hasattr(model, "use_ssl"):
                model.use_ssl = config.use_ssl
        if has_host and config.protocol == "grpc-v2":
            # Here, so that a missing grpcio fails the load.
            client = importlib.import_module(f"{self._package.name}.inference_client")
            model._grpc_client_stub = client.InferenceGRPCClient(
                config.predictor_host, use_ssl=config.use_ssl, timeout=config.timeout, retries=config.retries
            )
        if has_host and config.predictor_health_check:
            await self._wait_for_predictor()

    async def _wait_for_predictor(self) -> None:
        """Waits until the predictor is ready. Raises `MLServerError` after the timeout of requests."""
        import asyncio

        model, config = self.model, self._predictor
        end = perf_counter() + config.timeout
        while True:
            try:
                if config.protocol == "grpc-v2":
                    is_ready = await model._grpc_client.is_model_ready(self.name)
                else:
                    is_ready = await model._http_client.is_model_ready(config.predictor_base_url, self.name)
                reason = "it answers that it is not"
            except Exception as error:
                is_ready, reason = False, f"{type(error).__name__}: {_text(error)}"
            if is_ready:
                return
            if perf_counter() > end:
                raise MLServerError(
                    f"predictor `{config.predictor_host}` is not ready after {config.timeout} s: {reason}", 500
                )
            await asyncio.sleep(min(0.5, config.timeout / 10))

    async def unload(self) -> bool:
        model = self.model
        if getattr(model, "engine", False):
            await self._either(model.stop_engine)
        await self._either(model.stop)
        for loop in self._loops:
            loop.close()
        for name in ("_http_client_instance", "_grpc_client_stub", "_explainer_client"):
            client = getattr(model, name, None)
            if client is not None:
                with contextlib.suppress(Exception):
                    await client.close()
        return True

    async def _either(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a coroutine function on the event loop, and a plain function on the model's threads."""
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            return await function(*arguments)
        result = await self._run_plain(lambda: function(*arguments))
        return await result if inspect.isawaitable(result) else result

    async def metadata(self) -> MetadataModelResponse:
        found = await super().metadata()
        for name, method in (("inputs", "get_input_types"), ("outputs", "get_output_types")):
            types = getattr(self.model, method, None)
            if types is not None and not getattr(found, name):
                setattr(found, name, [MetadataTensor(**each) for each in types()])
        return found

    # V2

    def _predict_plain(self, payload: InferenceRequest) -> InferenceResponse:
        request, headers = self._request(payload)
        try:
            result, response_headers = self._run(request, headers, "predict")
            return self._response(_collected(result), response_headers)
        except Exception as error:
            raise_translated(error)

    async def _predict_async(self, payload: InferenceRequest) -> InferenceResponse:
        request, headers = self._request(payload)
        try:
            result, response_headers = await self._run_async(request, headers, "predict")
            return self._response(_collected(result), response_headers)
        except Exception as error:
            raise_translated(error)

    def _request(self, payload: InferenceRequest) -> Tuple[Any, Dict[str, str]]:
        """Returns KServe's request, and the headers."""
        package = self._package
        parameters = wire_parameters(payload.parameters)
        headers = {name.lower(): str(value) for name, value in (parameters.pop("headers", None) or {}).items()}
        infer_type = package.infer_type
        inputs = [package.lazy_input(tensor) for tensor in payload.inputs]
        options: Dict[str, Any] = {}
        if payload.outputs:
            options["request_outputs"] = [
                infer_type.RequestedOutput(output.name, wire_parameters(output.parameters) or None)
                for output in payload.outputs
            ]
        request = package.request(
            model_name=self.name,
            infer_inputs=inputs,
            request_id=payload.id,
            parameters=parameters or None,
            **options,
        )
        if self.version is not None:
            request.model_version = self.version
        return request, headers

    def _response(self, result: Any, response_headers: Optional[Dict[str, str]]) -> InferenceResponse:
        """Returns the response for a result of the model."""
        if isinstance(result, InferenceResponse):
            return result
        infer_type = self._package.infer_type
        if type(result).__name__ == "ModelInferResponse":
            result = infer_type.InferResponse.from_grpc(result)
        if isinstance(result, infer_type.InferResponse):
            tensors = result.outputs
            requested = getattr(result, "_requested_outputs", None)
            if requested:
                tensors = [_requested(result, output.name) for output in requested]
            outputs = [_output(tensor) for tensor in tensors]
            parameters = _http_parameters(result.parameters)
        elif isinstance(result, dict):
            if not isinstance(result.get("outputs"), list):
                keys = ", ".join(f"`{key}`" for key in list(result)[:5])
                raise TypeError(
                    f"expected an InferResponse or its dictionary with `outputs`, got a dictionary with {keys}"
                )
            outputs = [
                tensor_output(
                    each["name"], each["datatype"], each["shape"], _sent(each.get("parameters")), each.get("data")
                )
                for each in result["outputs"]
            ]
            parameters = _http_parameters(result.get("parameters"))
        else:
            outputs, parameters = _array_outputs(result), {}
        response = inference_response(self.name, self.version, outputs)
        if response_headers:
            sent = dict(_sent_headers(response_headers, ("content-type", *_FRAMING)))
            parameters = {**parameters, "headers": sent}
        if parameters:
            response.parameters = Parameters(**parameters)
        return response

    # V1

    def _respond_plain(self, call: Tuple[Dict[str, Any], Any]) -> Reply:
        try:
            body, headers, verb = _read(*call)
            result, response_headers = self._run(body, headers, verb)
            if inspect.isgenerator(result):
                return _streamed(list(_bounded(result)), response_headers)
            return _reply(result, response_headers)
        except Exception as error:
            return _failed(error)

    async def _respond_async(self, call: Tuple[Dict[str, Any], Any]) -> Reply:
        try:
            body, headers, verb = _read(*call)
            result, response_headers = await self._run_async(body, headers, verb)
            if hasattr(result, "__aiter__"):
                chunks: List[bytes] = []
                size = 0
                async for item in result:
                    chunks.append(_chunk(item))
                    size = _checked(size + len(chunks[-1]))
                return _streamed(chunks, response_headers)
            if inspect.isgenerator(result):
                return _streamed(await self._run_plain(lambda: list(_bounded(result))), response_headers)
            return _reply(result, response_headers)
        except Exception as error:
            return _failed(error)

    # Both

    def _set_context(self) -> None:
        if self._package.context is not None:
            self._package.context.set_predictor_config(self._predictor)

    def _check_ready(self) -> None:
        if not self.model.ready:
            raise MLServerError(f"Model with name {self.name} is not ready.", 503)

    def _lacks_explainer(self) -> bool:
        return _is_default(self.model, "explain") and getattr(self.model, "explainer_host", None) is None

    def _run(self, body: Body, headers: Dict[str, str], verb: str) -> Tuple[Any, Optional[Dict[str, str]]]:
        """Returns the result for a request and the headers of the response. All steps are plain functions."""
        self._check_ready()
        self._set_context()
        model = self.model
        if self._call is not None:
            arguments = (body, headers, self._verb(verb))[: self._call_arity]
            result = self._call(*arguments)
            if inspect.isawaitable(result):
                result = self._drive(result)
            return _with_headers(result)
        if verb == "explain" and self._lacks_explainer():
            raise NotImplementedError("Could not find explainer_host.")
        pipeline = self._pipelines[verb]
        response_headers: Dict[str, str] = {}
        arguments = (headers, response_headers)
        before, main, after = pipeline.before, pipeline.main, pipeline.after
        start = perf_counter()
        payload = body if before is None else before.function(body, *arguments[: before.arity - 1])
        first = perf_counter()
        payload = model.validate(payload)
        assert main is not None
        result = main.function(payload, *arguments[: main.arity - 1])
        if type(result) is CoroutineType:  # of a plain function that calls a coroutine function
            result = self._drive(result)
        second = perf_counter()
        if after is not None:
            result = after.function(result, *arguments[: after.arity - 1])
        self._observe(verb, headers, start, first, second)
        return result, response_headers

    async def _run_async(self, body: Body, headers: Dict[str, str], verb: str) -> Tuple[Any, Optional[Dict[str, str]]]:
        """Does the same. Coroutine functions run on the event loop, plain functions on the model's threads."""
        self._check_ready()
        self._set_context()
        if self._call is not None:
            result = self._call(*(body, headers, self._verb(verb))[: self._call_arity])
            return _with_headers(await result if inspect.isawaitable(result) else result)
        if verb == "explain" and self._lacks_explainer():
            raise NotImplementedError("Could not find explainer_host.")
        pipeline = self._pipelines[verb]
        response_headers: Dict[str, str] = {}
        start = perf_counter()
        payload = await self._await(pipeline.before, body, headers, response_headers)
        first = perf_counter()
        payload = self.model.validate(payload)
        result = await self._await(pipeline.main, payload, headers, response_headers)
        second = perf_counter()
        result = await self._await(pipeline.after, result, headers, response_headers)
        self._observe(verb, headers, start, first, second)
        return result, response_headers

    async def _await(self, step: Optional[_Step], value: Any, *others: Any) -> Any:
        if step is None:
            return value
        arguments = (value, *others[: step.arity - 1])
        if step.is_async:
            result = step.function(*arguments)
        else:
            result = await self._run_plain(lambda: step.function(*arguments))
        return await result if inspect.isawaitable(result) else result

    def _observe(self, verb: str, headers: Dict[str, str], start: float, first: float, second: float) -> None:
        end = perf_counter()
        histograms = self._histograms
        if histograms:
            histograms[0].observe(first - start)
            histograms[2 if verb == "explain" else 1].observe(second - first)
            histograms[3].observe(end - second)
        if getattr(self.model, "enable_latency_logging", False):
            _log_latency(headers, verb, first - start, second - first, end - second)

    def _verb(self, verb: str) -> Any:
        verbs = self._package.model.InferenceVerb
        return verbs.EXPLAIN if verb == "explain" else verbs.PREDICT

    def _drive(self, coroutine: Any) -> Any:
        """Runs a coroutine on the current thread, on an event loop of this thread."""
        import asyncio

        loop = getattr(self._threads, "loop", None)
        if loop is None:
            loop = self._threads.loop = asyncio.new_event_loop()
            self._loops.append(loop)
        return loop.run_until_complete(coroutine)


class StreamingKServeModel(KServeModel):
    """A model whose `predict` returns a generator."""

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            async for response in self._responses(*self._request(payload)):
                yield response
            return

    async def _responses(self, request: Any, headers: Dict[str, str]) -> AsyncIterator[InferenceResponse]:
        try:
            if self._predict_is_async:
                result, response_headers = await self._run_async(request, headers, "predict")
            else:
                result, response_headers = await self._run_plain(lambda: self._run(request, headers, "predict"))
            if hasattr(result, "__aiter__"):
                async for item in result:
                    yield self._response(item, response_headers)
            elif hasattr(result, "__next__"):
                while True:
                    item = await self._run_plain(lambda: next(result, _END))
                    if item is _END:
                        return
                    yield self._response(item, response_headers)
            else:
                yield self._response(result, response_headers)
        except Exception as error:
            raise_translated(error)


_END: Any = object()


async def _call(function: Callable[[], Any]) -> Any:
    return function()


def _predictor(settings: ModelSettings, package: _Package, model: Any) -> Any:
    """Returns the predictor in `parameters.extra`. KServe's default, without a host, if there is none."""
    names = (
        "predictor_host",
        "predictor_protocol",
        "predictor_use_ssl",
        "predictor_request_timeout_seconds",
        "predictor_request_retries",
        "predictor_health_check",
    )
    extra = _extra(settings)
    given = {name: extra[name] for name in names if extra.get(name) is not None}
    protocol = given.get("predictor_protocol", "v1")
    if protocol not in ("v1", "v2", "grpc-v2"):
        raise MLServerError(
            f"invalid `predictor_protocol` {protocol!r} in `parameters.extra`: use v1, v2 or grpc-v2", 500
        )
    if package.context is None:
        # Older versions keep them in the model.
        for name, value in (("predictor_host", given.get("predictor_host")), ("protocol", protocol)):
            if value is not None and hasattr(model, name):
                with contextlib.suppress(AttributeError):
                    setattr(model, name, value)
        return None
    config = importlib.import_module(f"{package.name}.predictor_config").PredictorConfig
    return config(**{"predictor_host": None, **given})


def _lazy_input(base: Any) -> Any:
    """Returns a class of inputs over tensors of the worker, which become lists only if `data` is read."""

    class InferInput(base):  # type: ignore[misc]
        _tensor: Any = None
        _value: Any = None

        def __init__(self, tensor: Any) -> None:
            parameters = wire_parameters(tensor.parameters)
            super().__init__(tensor.name, tensor.shape, tensor.datatype, None, parameters or None)
            self._tensor = tensor.data

        @property
        def _data(self) -> Any:
            if self._value is None and self._tensor is not None:
                self._value = self._tensor.root
            return self._value

        @_data.setter
        def _data(self, value: Any) -> None:
            self._value, self._tensor = value, None

        def as_numpy(self) -> Any:
            # A list that was read may have been changed.
            elements = None if self._tensor is None or self._value is not None else self._tensor.elements
            if isinstance(elements, FixedElements) and elements.datatype != "BF16":
                return elements.numpy().reshape(self._shape)
            return super().as_numpy()

    return InferInput


def _binary_request(base: Any) -> Any:
    """Returns a class of requests whose outputs may be raw: the server writes them as the client has asked for."""

    class InferRequest(base):  # type: ignore[misc]
        use_binary_outputs = True

    return InferRequest


def _output(tensor: Any) -> Any:
    """Returns the output of the worker for KServe's output."""
    raw = getattr(tensor, "_raw_data", None)
    data = tensor.data
    if raw is not None and tensor.datatype == "BYTES":
        data = _split(raw)
    elif raw is not None:
        data = FixedElements(tensor.datatype, memoryview(raw).cast("B"))
    return tensor_output(tensor.name, tensor.datatype, list(tensor.shape), _sent(tensor.parameters), data)


def _split(raw: Any) -> List[bytes]:
    """Returns the elements of raw bytes, each of which begins with its length in 4 bytes."""
    view = memoryview(raw).cast("B")
    elements = []
    offset = 0
    while offset < len(view):
        start = offset + 4
        offset = start + int.from_bytes(view[offset:start], "little")
        if offset > len(view):
            raise ValueError("an element of a BYTES tensor exceeds its data")
        elements.append(bytes(view[start:offset]))
    return elements


def _requested(response: Any, name: str) -> Any:
    tensor = response.get_output_by_name(name)
    if tensor is None:
        raise MLServerError(f"Unexpected inference output '{name}' for model '{response.model_name}'", 400)
    return tensor


def _http_parameters(parameters: Any) -> Dict[str, Any]:
    """Returns parameters with values of Python instead of those of gRPC."""
    found = {}
    for name, value in (parameters or {}).items():
        kind = value.WhichOneof("parameter_choice") if hasattr(value, "WhichOneof") else None
        found[name] = value if kind is None else getattr(value, kind)
    return found


def _sent(parameters: Any) -> Optional[Dict[str, Any]]:
    """Returns the parameters of an output without the size of its raw bytes, which the server knows."""
    found = _http_parameters(parameters)
    found.pop("binary_data_size", None)
    return found or None


def _array_outputs(result: Any) -> List[Any]:
    """Returns the outputs for an array, a frame, or a list."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(result, pandas.DataFrame):
        return [_array_output(str(name), result[name].to_numpy()) for name in result.columns]
    if isinstance(result, list) and result and all(isinstance(item, str) for item in result):
        return [tensor_output("output-0", "BYTES", [len(result)], None, result)]
    if isinstance(result, (list, tuple)):
        import numpy

        result = numpy.array(result)
    if hasattr(result, "dtype") and hasattr(result, "shape") and hasattr(result, "tolist"):
        return [_array_output("output-0", result)]
    raise TypeError(
        f"expected an InferResponse, its dictionary, an array, a frame or a list, got {type(result).__name__}"
    )


def _array_output(name: str, array: Any) -> Any:
    from ._kserve.utils.numpy_codec import from_np_dtype

    datatype = from_np_dtype(array.dtype)
    if datatype is None:
        raise TypeError(f"an array of {array.dtype} has no datatype")
    return tensor_output(name, datatype, list(array.shape), None, array.tolist() if datatype == "BYTES" else array)


def _collected(result: Any) -> Any:
    if inspect.isgenerator(result) or hasattr(result, "__aiter__"):
        message = "the model answers with a stream: ask for it with `infer_stream` or `generate_stream`"
        raise MLServerError(message, 501)
    return result


def _with_headers(result: Any) -> Tuple[Any, Optional[Dict[str, str]]]:
    """Returns result and headers of a model's `__call__`, which may return both."""
    if isinstance(result, tuple) and len(result) == 2 and (result[1] is None or isinstance(result[1], dict)):
        return result
    return result, None


# V1


def _read(head: Dict[str, Any], content: Any) -> Tuple[Any, Dict[str, str], str]:
    """Returns body and headers of a request of V1, and "predict" or "explain"."""
    headers: Dict[str, str] = dict(head["headers"])
    verb = "explain" if head["handler"] == "v1:explain" else "predict"
    is_event = "ce-specversion" in headers and all(name in headers for name in _EVENT)
    if not (is_event or _is_json(headers.get("content-type", ""))):
        return bytes(content), headers, verb
    try:
        body = json.loads(str(content, "utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        if is_event:
            return bytes(content), headers, verb
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise MLServerError(f"Unrecognized request format: {reason}", 400) from None
    return body, headers, verb


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _is_json(content_type: str) -> bool:
    """Returns whether a body of V1 is read as JSON: also `application/octet-stream`, as in KServe."""
    if not content_type or content_type == "application/json":
        return True
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json")) or media in _JSON_TYPES


_encoder = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=lambda value: _plain(value)
)


def _plain(value: Any) -> Any:
    """Returns a value that JSON has for one of NumPy or pandas, or for a response of V2."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    if hasattr(value, "to_rest"):
        return _rest(value)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def _rest(response: Any) -> Any:
    """Returns a response of V2 as JSON; FP16 as numbers."""
    found = {"id": response.id, "model_name": response.model_name, "model_version": response.model_version}
    tensors = []
    for tensor in response.outputs:
        output = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        data = tensor.data if getattr(tensor, "_raw_data", None) is None else _output(tensor).data.root
        tensors.append({**output, "data": data})
    return {**found, "outputs": tensors}


def _reply(result: Any, response_headers: Optional[Dict[str, str]]) -> Reply:
    if isinstance(result, (bytes, bytearray, str)):
        content = result.encode() if isinstance(result, str) else bytes(result)
        return (200, _sent_headers(response_headers or {}, _FRAMING), content)
    if not response_headers:
        return (200, _JSON, to_json(result))
    return (200, _sent_headers(response_headers, ("content-type", *_FRAMING)) + _JSON, to_json(result))


def _sent_headers(headers: Dict[str, Any], dropped: Iterable[str]) -> Pairs:
    """Returns headers of a response as text. Those that describe a predictor's connection or body are dropped."""
    return [(str(name), str(value)) for name, value in headers.items() if str(name).lower() not in dropped]


def to_json(value: Any) -> bytes:
    """Returns compact JSON. Numbers that JSON lacks become null, as in KServe.

    Raises `TypeError` for values that JSON lacks, and `ValueError` for a value that contains itself.
    """
    try:
        return _encoder.encode(value).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the result has text that is not Unicode: {error}") from None
    except RecursionError:
        raise ValueError("the result is nested too deeply") from None
    except ValueError as error:
        if "Circular" in str(error):
            raise ValueError("the result contains itself") from None
    return _encoder.encode(jsonable(json.loads(_with_nan.encode(value)))).encode()


_with_nan = json.JSONEncoder(default=lambda value: _plain(value))


def _bounded(items: Iterable[Any]) -> Iterator[bytes]:
    """Yields the parts of a streamed answer. Raises `MLServerError` if they are too long."""
    size = 0
    for item in items:
        chunk = _chunk(item)
        size = _checked(size + len(chunk))
        yield chunk


def _checked(size: int) -> int:
    if size > _MAX_COLLECTED:
        raise MLServerError(f"the streamed answer is longer than {_MAX_COLLECTED} bytes", 500)
    return size


def _chunk(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    return bytes(item) if isinstance(item, (bytes, bytearray, memoryview)) else to_json(item)


def _streamed(chunks: List[bytes], response_headers: Optional[Dict[str, str]]) -> Reply:
    headers = _sent_headers(response_headers or {}, ("content-type", *_FRAMING))
    return (200, [("content-type", "text/event-stream"), *headers], b"".join(chunks))


def _failed(error: Exception) -> Reply:
    """Returns the reply for an exception. Raises those that the server should log, with KServe's words."""
    if is_http_exception(error):
        headers = [(str(name), str(value)) for name, value in (getattr(error, "headers", None) or {}).items()]
        body = to_json({"detail": jsonable(getattr(error, "detail", None))})
        return (int(error.status_code), headers + _JSON, body)  # type: ignore[attr-defined]
    found = translated(error)
    if isinstance(found, MLServerError) and found.status_code != 500:
        return (found.status_code, _JSON, to_json({"error": str(found)}))
    # Raised, so that the server logs it.
    if found is error:
        raise found
    raise found from error


def raise_translated(error: Exception) -> NoReturn:
    """Raises the error with KServe's status and words for an exception of a model."""
    found = translated(error)
    if found is error:
        raise error
    raise found from error


def translated(error: Exception) -> Exception:
    """Returns the error with KServe's status and words for an exception of a model."""
    if isinstance(error, MLServerError) or is_http_exception(error):
        return error
    # A predictor's answer; only errors of our module have it.
    passed_on = getattr(error, "http_status", None)
    if isinstance(passed_on, int):
        return MLServerError(_text(error), passed_on)
    for base in type(error).__mro__:
        status = _STATUSES.get(base.__name__)
        if status is not None and base.__module__ in ("kserve.errors", "mlserver._kserve.errors"):
            return MLServerError(_text(error), status)
    if isinstance(error, NotImplementedError):
        return MLServerError(_text(error), 501)
    return MLServerError(f"{type(error).__name__} : {_text(error)}", 500)


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        # KServe's InferenceError fails if its status is a number.
        try:
            return str(getattr(error, "reason", ""))
        except Exception:
            return ""


def _log_latency(headers: Dict[str, str], verb: str, before: float, main: float, after: float) -> None:
    import logging

    took = {"predict": 0.0, "explain": 0.0, verb: round(1000 * main, 9)}
    logging.getLogger("kserve.trace").info(
        "requestId: %s, preprocess_ms: %s, explain_ms: %s, predict_ms: %s, postprocess_ms: %s",
        headers.get("x-request-id", "N.A."),
        round(1000 * before, 9),
        took["explain"],
        took["predict"],
        round(1000 * after, 9),
    )


__all__ = ["KServeModel", "StreamingKServeModel", "V1Handler", "adapt", "is_kserve_class", "wrap"]
