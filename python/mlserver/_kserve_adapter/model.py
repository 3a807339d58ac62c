"""Models of the worker that run instances of KServe's classes."""

import contextlib
import importlib
import inspect
import os
import threading
from time import perf_counter
from types import CoroutineType
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Optional, Sequence, Tuple, Type

from .. import metrics
from .._kserve_classes import package_of
from .._payload import inference_response, tensor_output, wire_parameters
from .._replies import Reply, iterate
from .._worker_model import WorkerHandler, WorkerModel
from ..errors import MLServerError
from ..settings import ModelSettings
from ..types import InferenceRequest, InferenceResponse, MetadataModelResponse, MetadataTensor, Parameters
from .failures import raise_translated, text_of
from .openai import answers_openai, is_proxy, openai_handlers
from .package import Package, is_default, packages
from .predictor import ServedPredictor, served_predictor
from .steps import Code, Pipeline, Step, lacks_explainer, log_latency, single_result, with_headers
from .tensors import array_outputs, came_over_grpc, http_parameters, output_of, requested_output, sent_parameters
from .v1 import (
    FRAMING,
    AnyReply,
    V1Handler,
    failed_reply,
    read_body,
    reply,
    sent_headers,
    streamed_reply,
)

#: The names of KServe's histograms in its package.
_HISTOGRAMS = {
    "preprocess": "PRE_HIST_TIME",
    "predict": "PREDICT_HIST_TIME",
    "explain": "EXPLAIN_HIST_TIME",
    "postprocess": "POST_HIST_TIME",
}


def adapt(settings: ModelSettings, cls: Type[Any]) -> "KServeModel":
    """Creates an instance of a class of KServe, and returns the model of the worker that runs it."""
    instance, has_loaded = _instance_of(cls, settings)
    adapted = wrap(settings, instance)
    # KServe's models of OpenAI's API are ready at once, although a subclass may have a `load`.
    adapted.loads_when_ready = answers_openai(type(instance)) and not has_loaded and not is_default(instance, "load")
    return adapted


def wrap(settings: ModelSettings, instance: Any, predictor: Any = None) -> "KServeModel":
    """Returns the model of the worker that runs an instance. `predictor` is its `PredictorConfig`, if it has one."""
    name = package_of(type(instance))
    if name is None:
        raise TypeError(f"`{type(instance).__qualname__}` does not extend `kserve.model.BaseKServeModel`")
    package = packages.get(name)
    if package is None:
        package = packages[name] = Package(name)
    if getattr(instance, "name", None) != settings.name:
        with contextlib.suppress(AttributeError):
            instance.name = settings.name
    served = None if predictor is not None else served_predictor(settings)
    predictor = predictor if predictor is not None else _predictor(settings, package, instance)
    explainer = _extra(settings).get("explainer_host")
    if explainer is not None:
        instance.explainer_host = explainer
    code = Code(instance, package)
    cls = AsyncKServeModel if code.predict_is_async else PlainKServeModel
    return cls(settings, instance, package, code, predictor, served)


def _instance_of(cls: Type[Any], settings: ModelSettings) -> Tuple[Any, bool]:
    """Creates an instance: the name is that of the model, other arguments come from `parameters.extra`.

    Returns whether its constructor has called `load`, too.
    """
    extra = _extra(settings)
    parameters = list(inspect.signature(cls).parameters.values())
    names = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    arguments = {name: value for name, value in extra.items() if name in names and name != "name"}
    if "name" in names:
        return _created(cls, name=settings.name, **arguments)
    first = parameters[0] if parameters else None
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD, first.VAR_POSITIONAL):
        arguments.pop(first.name, None)
        return _created(cls, settings.name, **arguments)
    return _created(cls, **arguments)


def _created(cls: Type[Any], *arguments: Any, **named: Any) -> Tuple[Any, bool]:
    """Creates an instance as a call of the class does.

    Returns whether the constructor of a model of OpenAI's API has called `load`, too.
    """
    if not answers_openai(cls) or type(cls).__call__ is not type.__call__:
        return cls(*arguments, **named), False
    instance = cls.__new__(cls, *arguments, **named)
    if not isinstance(instance, cls):
        return instance, False
    has_loaded = False

    def load(*arguments: Any, **named: Any) -> Any:
        nonlocal has_loaded
        has_loaded = True
        return cls.load(instance, *arguments, **named)

    fields = getattr(instance, "__dict__", {})
    fields["load"] = load
    try:
        instance.__init__(*arguments, **named)
    finally:
        if fields.get("load") is load:
            del fields["load"]
    return instance, has_loaded


def _extra(settings: ModelSettings) -> Dict[str, Any]:
    return (settings.parameters.extra if settings.parameters is not None else None) or {}


class KServeModel(WorkerModel):
    """A model of the worker that calls an instance of KServe's `BaseKServeModel`. `wrap` chooses its subclass."""

    def __init__(
        self,
        settings: ModelSettings,
        model: Any,
        package: Package,
        code: Code,
        predictor: Any,
        served_predictor: Optional[str],
    ) -> None:
        super().__init__(settings)
        #: The instance of the user's class.
        self.model = model
        self._package = package
        self._code = code
        self._predictor = predictor
        #: The name of the model of this server that is the predictor.
        self._served_predictor = served_predictor
        self._run_plain: Callable[[Callable[[], Any]], Awaitable[Any]] = _call
        self._threads = threading.local()
        self._has_loaded = True
        #: Whether `load` is called although the model is ready.
        self.loads_when_ready = False
        #: The event loops of the model's threads.
        self._loops: List[Any] = []
        self._histograms: List[Any] = []
        respond = (self._respond_plain, self._respond_async)
        self._handlers: List[WorkerHandler] = [
            V1Handler(f"v1:{name}", f"/v1/models/{{model_name}}:{name}", name, respond[is_async], is_async)
            for name, is_async in (("predict", code.predict_is_async), ("explain", code.explain_is_async))
        ]
        self._handlers.append(V1Handler("v1:ready", "/v1/models/{model_name}", "ready", self._respond_ready, True, "GET"))
        self._handlers.extend(openai_handlers(model, self._plain))

    def add_handlers(self, handlers: Sequence[WorkerHandler]) -> None:
        """Adds handlers of other routes."""
        self._handlers.extend(handlers)

    def steps(self) -> List[str]:
        return [] if self._served_predictor is None else [self._served_predictor]

    def asks_servers(self) -> bool:
        model = self.model
        if is_proxy(type(model)) or _has(model, "explainer_host"):
            return True
        # A predictor that runs on this server is not another server.
        if self._served_predictor is not None:
            return False
        self._set_context()
        with contextlib.suppress(Exception):
            if _has(model.predictor_config, "predictor_host"):
                return True
        return _has(model, "predictor_host") or _has(self._predictor, "predictor_host")

    def handlers(self) -> List[WorkerHandler]:
        return self._handlers

    def bind(self, run_plain: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._run_plain = run_plain

    def _plain(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return self._run_plain(function)

    # Loading

    async def load(self) -> bool:
        model = self.model
        self._set_context()
        if self._code.call is None:
            self._histograms = [self._histogram(step) for step in ("preprocess", "predict", "explain", "postprocess")]
        await self._connect()
        # A model that its constructor has loaded is ready already.
        if not model.ready or self.loads_when_ready:
            loaded = await self._either(model.load)
            self._has_loaded = loaded is not False
            if loaded is False:
                model.ready = False
            elif loaded is True:
                model.ready = True
        if model.ready:
            if not is_default(model, "start"):
                await self._either(model.start)
                if inspect.iscoroutinefunction(getattr(model, "start", None)):
                    model.ready = True
            if getattr(model, "engine", False):
                await self._either(model.start_engine)
        # Whether the model is ready is asked again and again: see `_obstacle`.
        return True

    async def _obstacle(self) -> str:
        """Returns why the model is not ready, or an empty text."""
        model = self.model
        if not model.ready:
            return "its `ready` is false" if self._has_loaded else "its `load` returned false"
        if not hasattr(model, "healthy") or is_default(model, "healthy"):
            return ""
        self._set_context()
        try:
            is_healthy = await self._either(model.healthy)
            # That of KServe's proxy may return the coroutine of its base class.
            if inspect.isawaitable(is_healthy):
                is_healthy = await is_healthy
            return "" if is_healthy else "its `healthy` returned false"
        except Exception as error:
            return f"its `healthy` raised {type(error).__name__}: {text_of(error)}"

    async def _respond_ready(self, _call: Tuple[Dict[str, Any], Any]) -> Reply:
        obstacle = await self._obstacle()
        return Reply(503 if obstacle else 200, [("content-type", "text/plain")], obstacle.encode("utf-8", "replace"))

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
        if self._served_predictor is not None:
            model._http_client_instance = ServedPredictor(self._served_predictor, config.protocol, self._package)
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
                is_ready, reason = False, f"{type(error).__name__}: {text_of(error)}"
            if is_ready:
                return
            if perf_counter() > end:
                raise MLServerError(
                    f"predictor `{config.predictor_host}` is not ready after {config.timeout} s: {reason}", 500
                )
            await asyncio.sleep(min(0.5, config.timeout / 10))

    async def unload(self) -> bool:
        model = self.model
        # In KServe's order.
        try:
            await self._either(model.stop)
        finally:
            if getattr(model, "engine", False):
                await self._either(model.stop_engine)
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
                setattr(found, name, [MetadataTensor(**each) for each in await self._either(types) or ()])
        return found

    # V2

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
        from_grpc = came_over_grpc(payload)
        request = package.request(
            model_name=self.name,
            infer_inputs=inputs,
            request_id=payload.id,
            from_grpc=from_grpc,
            parameters=package.grpc_parameters(parameters) if from_grpc else parameters or None,
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
        name: Any = None
        version: Optional[str] = None
        if type(result).__name__ == "ModelInferResponse":
            result = infer_type.InferResponse.from_grpc(result)
        if isinstance(result, infer_type.InferResponse):
            tensors = result.outputs
            requested = getattr(result, "_requested_outputs", None)
            if requested:
                tensors = [requested_output(result, output.name) for output in requested]
            outputs = [output_of(tensor) for tensor in tensors]
            parameters = http_parameters(result.parameters)
            name, version = result.model_name, result.model_version
        elif isinstance(result, dict):
            if not isinstance(result.get("outputs"), list):
                keys = ", ".join(f"`{key}`" for key in list(result)[:5])
                raise TypeError(
                    f"expected an InferResponse or its dictionary with `outputs`, got a dictionary with {keys}"
                )
            outputs = [
                tensor_output(
                    each["name"],
                    each["datatype"],
                    each["shape"],
                    sent_parameters(each.get("parameters")),
                    each.get("data"),
                )
                for each in result["outputs"]
            ]
            parameters = http_parameters(result.get("parameters"))
            name, version = result.get("model_name"), result.get("model_version")
        else:
            outputs, parameters = array_outputs(result), {}
        if not isinstance(name, str) or name in ("", self._served_predictor):
            name = self.name
        response = inference_response(name, version or self.version, outputs)
        if response_headers:
            sent = dict(sent_headers(response_headers, ("content-type", *FRAMING)))
            parameters = {**parameters, "headers": sent}
        if parameters:
            response.parameters = Parameters(**parameters)
        return response

    # V1

    def _respond_plain(self, call: Tuple[Dict[str, Any], Any]) -> AnyReply:
        try:
            body, headers, verb = read_body(*call)
            result, response_headers = self._run(body, headers, verb)
            if inspect.isgenerator(result) or hasattr(result, "__aiter__"):
                return streamed_reply(iterate(result, self._run_plain), response_headers)
            return reply(result, response_headers)
        except Exception as error:
            return failed_reply(error)

    async def _respond_async(self, call: Tuple[Dict[str, Any], Any]) -> AnyReply:
        try:
            body, headers, verb = read_body(*call)
            result, response_headers = await self._run_async(body, headers, verb)
            if inspect.isgenerator(result) or hasattr(result, "__aiter__"):
                return streamed_reply(iterate(result, self._run_plain), response_headers)
            return reply(result, response_headers)
        except Exception as error:
            return failed_reply(error)

    # Both

    def _set_context(self) -> None:
        if self._package.context is not None:
            self._package.context.set_predictor_config(self._predictor)

    def _check_ready(self) -> None:
        if not self.model.ready:
            raise MLServerError(f"Model with name {self.name} is not ready.", 503)

    def _run(self, body: Any, headers: Dict[str, str], verb: str) -> Tuple[Any, Optional[Dict[str, str]]]:
        """Returns the result for a request and the headers of the response. All steps are plain functions."""
        self._check_ready()
        self._set_context()
        model, call = self.model, self._code.call
        if call is not None:
            arguments = (body, headers, self._verb(verb))[: self._code.arity]
            result = call(*arguments)
            if inspect.isawaitable(result):
                result = self._drive(result)
            return with_headers(result)
        if verb == "explain" and lacks_explainer(self.model):
            raise NotImplementedError("Could not find explainer_host.")
        pipeline = self._pipeline(verb)
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

    async def _run_async(self, body: Any, headers: Dict[str, str], verb: str) -> Tuple[Any, Optional[Dict[str, str]]]:
        """Does the same. Coroutine functions run on the event loop, plain functions on the model's threads."""
        self._check_ready()
        self._set_context()
        call = self._code.call
        if call is not None:
            result = call(*(body, headers, self._verb(verb))[: self._code.arity])
            return with_headers(await result if inspect.isawaitable(result) else result)
        if verb == "explain" and lacks_explainer(self.model):
            raise NotImplementedError("Could not find explainer_host.")
        pipeline = self._pipeline(verb)
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

    async def _await(self, step: Optional[Step], value: Any, *others: Any) -> Any:
        if step is None:
            return value
        arguments = (value, *others[: step.arity - 1])
        if step.is_async:
            result = step.function(*arguments)
        else:
            result = await self._run_plain(lambda: step.function(*arguments))
        return await result if inspect.isawaitable(result) else result

    def _pipeline(self, verb: str) -> Pipeline:
        pipeline = self._code.pipelines.get(verb)
        if pipeline is None:
            raise MLServerError(f"Model {self.name} answers only requests of OpenAI's API", 400)
        return pipeline

    def _observe(self, verb: str, headers: Dict[str, str], start: float, first: float, second: float) -> None:
        end = perf_counter()
        histograms = self._histograms
        if histograms:
            histograms[0].observe(first - start)
            histograms[2 if verb == "explain" else 1].observe(second - first)
            histograms[3].observe(end - second)
        if getattr(self.model, "enable_latency_logging", False):
            log_latency(headers, verb, first - start, second - first, end - second)

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

        async def result() -> Any:
            return await coroutine

        return loop.run_until_complete(result())

    # Streams of V2: `predict` may return any iterator, or one answer.

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            async for response in self._responses(*self._request(payload)):
                yield response
            return

    async def _responses(self, request: Any, headers: Dict[str, str]) -> AsyncIterator[InferenceResponse]:
        try:
            result, response_headers = await self._run_for_stream(request, headers)
            if hasattr(result, "__aiter__") or hasattr(result, "__next__"):
                items = iterate(result, self._run_plain)
                try:
                    async for item in items:
                        yield self._response(item, response_headers)
                finally:
                    await items.aclose()
            else:
                yield self._response(result, response_headers)
        except Exception as error:
            raise_translated(error, bool(vars(request).get("from_grpc")))

    async def _run_for_stream(self, request: Any, headers: Dict[str, str]) -> Tuple[Any, Optional[Dict[str, str]]]:
        raise NotImplementedError


class PlainKServeModel(KServeModel):
    """A model whose code for `predict` is plain functions."""

    def predict(self, payload: InferenceRequest) -> InferenceResponse:  # type: ignore[override]
        request, headers = self._request(payload)
        try:
            result, response_headers = self._run(request, headers, "predict")
            return self._response(single_result(result), response_headers)
        except Exception as error:
            raise_translated(error, came_over_grpc(payload))

    async def _run_for_stream(self, request: Any, headers: Dict[str, str]) -> Tuple[Any, Optional[Dict[str, str]]]:
        found: Tuple[Any, Optional[Dict[str, str]]] = await self._run_plain(lambda: self._run(request, headers, "predict"))
        return found


class AsyncKServeModel(KServeModel):
    """A model some of whose code for `predict` is coroutine functions."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        request, headers = self._request(payload)
        try:
            result, response_headers = await self._run_async(request, headers, "predict")
            return self._response(single_result(result), response_headers)
        except Exception as error:
            raise_translated(error, came_over_grpc(payload))

    async def _run_for_stream(self, request: Any, headers: Dict[str, str]) -> Tuple[Any, Optional[Dict[str, str]]]:
        return await self._run_async(request, headers, "predict")


def _has(holder: Any, name: str) -> bool:
    """Returns whether an attribute is the address of a server. A user's object may have anything under its name."""
    try:
        address = getattr(holder, name, None)
    except Exception:
        return False
    return isinstance(address, str) and bool(address)


async def _call(function: Callable[[], Any]) -> Any:
    return function()


def _predictor(settings: ModelSettings, package: Package, model: Any) -> Any:
    """Returns the predictor in `parameters.extra`, by default that of KServe, which has no host."""
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
    served = served_predictor(settings)
    if served is not None:
        given["predictor_host"] = served
        # Both forms of V2 are the same without a network.
        given["predictor_protocol"] = "v1" if given.get("predictor_protocol", "v1") == "v1" else "v2"
    protocol = extra.get("predictor_protocol") or "v1"
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
