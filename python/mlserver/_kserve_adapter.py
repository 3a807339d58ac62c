"""Runs models of KServe: classes that extend `kserve.Model`, of KServe's own package or of `mlserver._kserve`.

The model's methods are called in KServe's order: `preprocess`, `predict` or `explain`, `postprocess`. Requests of the V2
protocol become its `InferRequest`, over the received buffers; bodies of the V1 protocol are passed as they are.
"""

import functools
import inspect
import json
import sys
import time
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Optional, Tuple, Type, Union

from . import metrics
from ._blocking import is_async
from ._model import jsonable
from ._tensor import FixedElements
from .errors import MLServerError
from .model import MLModel
from .raw import unpack
from .settings import ModelSettings
from .types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)

__all__ = ["KServeModel", "adapt", "is_kserve_class"]

#: The packages that define the base classes.
_PACKAGES = ("kserve", "mlserver._kserve")
#: The statuses of KServe's own exceptions, by the names of their classes.
_STATUSES = {
    "InvalidInput": 400,
    "ModelNotFound": 404,
    "ModelNotReady": 503,
    "ServerNotReady": 503,
    "ServerNotLive": 503,
    "NoModelReady": 503,
    "InferenceError": 500,
    "UnsupportedProtocol": 501,
}
#: The most bytes of a streamed answer that are collected for a client that does not stream.
_MAX_COLLECTED = 64 << 20
#: The names of KServe's histograms in its package.
_HISTOGRAMS = {
    "preprocess": "PRE_HIST_TIME",
    "predict": "PREDICT_HIST_TIME",
    "explain": "EXPLAIN_HIST_TIME",
    "postprocess": "POST_HIST_TIME",
}
#: The media types of bodies that are JSON. The last one is what curl sends unless it is told otherwise.
_JSON_TYPES = frozenset(
    (
        "",
        "application/json",
        "application/cloudevents+json",
        "application/ld+json",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    )
)

Reply = Tuple[int, List[Tuple[str, str]], bytes]
Headers = Dict[str, str]


def is_kserve_class(cls: Any) -> bool:
    """Returns whether a class extends a base class of KServe."""
    return isinstance(cls, type) and any(
        base.__name__ == "BaseKServeModel" and _is_of_kserve(base.__module__) for base in cls.__mro__
    )


def _is_of_kserve(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in _PACKAGES)


def adapt(settings: ModelSettings, cls: Type[Any]) -> "KServeModel":
    """Creates an instance of a class of KServe, and returns the model that runs it."""
    extra = (settings.parameters and settings.parameters.extra) or {}
    accepted = inspect.signature(cls).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    arguments = {name: value for name, value in extra.items() if name != "name" and (takes_all or name in accepted)}
    return wrap(settings, cls(settings.name, **arguments))


def wrap(settings: ModelSettings, instance: Any) -> "KServeModel":
    """Returns the model that runs an instance of a class of KServe."""
    predict = inspect.unwrap(getattr(type(instance), "predict", None) or type(instance).__call__)
    streams = inspect.isasyncgenfunction(predict) or inspect.isgeneratorfunction(predict)
    return (StreamingKServeModel if streams else KServeModel)(settings, instance)


class KServeModel(MLModel):
    """The model of the worker that runs a model of KServe."""

    def __init__(self, settings: ModelSettings, instance: Any) -> None:
        super().__init__(settings)
        self._instance = instance
        self._steps = _Steps(settings, instance)
        self._classes = _classes()
        if not self._steps.is_async:
            # The worker runs it on a thread, as any plain function.
            self.predict = self._predict_plain  # type: ignore[assignment, method-assign]

    async def load(self) -> bool:
        instance = self._instance
        self._configure()
        if not getattr(instance, "ready", False):
            await _awaited(instance.load)
        ready = bool(getattr(instance, "ready", True))
        start = getattr(type(instance), "start", None)
        # That of the base class only sets `ready`.
        if ready and start is not None and not _is_of_kserve(start.__module__):
            await _awaited(instance.start)
        if ready and getattr(instance, "engine", False):
            await _awaited(getattr(instance, "start_engine", None))
        return ready

    def _configure(self) -> None:
        """Passes the address of a predictor or explainer to models that call one."""
        extra = (self.settings.parameters and self.settings.parameters.extra) or {}
        if "predictor_host" in extra:
            from kserve.model import PredictorConfig  # type: ignore[import-not-found]

            accepted = inspect.signature(PredictorConfig).parameters
            self._steps.predictor = PredictorConfig(**{name: extra[name] for name in accepted if name in extra})
        if "explainer_host" in extra:
            self._instance.explainer_host = extra["explainer_host"]

    async def unload(self) -> bool:
        if getattr(self._instance, "engine", False):
            await _awaited(getattr(self._instance, "stop_engine", None))
        await _awaited(getattr(self._instance, "stop", None))
        return True

    async def metadata(self) -> MetadataModelResponse:
        metadata = await super().metadata()
        for name, method in (("inputs", "get_input_types"), ("outputs", "get_output_types")):
            declared = await _awaited(getattr(self._instance, method, None))
            if declared and not getattr(metadata, name):
                setattr(metadata, name, [_metadata_tensor(tensor) for tensor in declared])
        return metadata

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        request, headers, answer_headers = self._request(payload)
        with _KServeErrors():
            result = await self._steps.run(request, headers, answer_headers, "predict")
        return self._response(result, answer_headers)

    def _predict_plain(self, payload: InferenceRequest) -> InferenceResponse:
        request, headers, answer_headers = self._request(payload)
        with _KServeErrors():
            result = _finished(self._steps.run(request, headers, answer_headers, "predict"))
        return self._response(result, answer_headers)

    def _v1_handlers(self) -> List["V1Handler"]:
        """Returns what answers requests of the V1 protocol."""
        return [V1Handler(self._steps, verb) for verb in ("predict", "explain")]

    def _request(self, payload: InferenceRequest) -> Tuple[Any, Headers, Headers]:
        values = {} if payload.parameters is None else dict(payload.parameters.__dict__)
        headers = values.pop("headers", None) or {}
        parameters = {name: value for name, value in values.items() if value is not None}
        request_class, input_class, output_class = self._classes
        request = request_class(
            self.name,
            [input_class(tensor) for tensor in payload.inputs],
            request_id=payload.id,
            parameters=parameters,
            request_outputs=[output_class(output.name, _values(output.parameters)) for output in payload.outputs or ()],
            model_version=self.version,
        )
        return request, {name.lower(): value for name, value in headers.items()}, {}

    def _response(self, result: Any, headers: Headers) -> InferenceResponse:
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise MLServerError(
                f"model '{self.name}' answers with a stream: ask for it with `infer_stream` or `generate_stream`", 501
            )
        response = _inference_response(self.name, self.version, result)
        if headers:
            response.parameters = response.parameters or Parameters()
            response.parameters.headers = {str(name): str(value) for name, value in headers.items()}
        return response


class StreamingKServeModel(KServeModel):
    """A model whose `predict` is a generator."""

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            request, headers, answer_headers = self._request(payload)
            with _KServeErrors():
                result = await self._steps.run(request, headers, answer_headers, "predict")
                async for item in _items(result):
                    yield _inference_response(self.name, self.version, item)
            return


class V1Handler:
    """Answers `:predict` or `:explain` of the V1 protocol. The server calls it with the body of the request."""

    method = "POST"

    def __init__(self, steps: "_Steps", verb: str) -> None:
        self.v1 = verb
        self.name = f"v1:{verb}"
        self.path = f"/v1/models/{{model_name}}:{verb}"
        self._steps = steps
        self.is_async = steps.is_async
        self._function = self._answer if steps.is_async else self._answer_plain

    async def invoke(self, head: Dict[str, Any], body: Any, run: Callable[..., Any]) -> Reply:
        reply: Reply = await run(self._function, {"head": head, "body": body})
        return reply

    async def _answer(self, head: Dict[str, Any], body: Any) -> Reply:
        headers, payload = _v1_payload(head, body)
        answer_headers: Headers = {}
        with _KServeErrors():
            result = await self._steps.run(payload, headers, answer_headers, self.v1)
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                return _collected([item async for item in _bounded(_items(result))], answer_headers)
        return _v1_reply(result, answer_headers)

    def _answer_plain(self, head: Dict[str, Any], body: Any) -> Reply:
        headers, payload = _v1_payload(head, body)
        answer_headers: Headers = {}
        with _KServeErrors():
            result = _finished(self._steps.run(payload, headers, answer_headers, self.v1))
            if inspect.isgenerator(result):
                return _collected(list(_bounded_plain(result)), answer_headers)
        return _v1_reply(result, answer_headers)


class _Steps:
    """Calls the methods of an instance in KServe's order, and measures them."""

    def __init__(self, settings: ModelSettings, instance: Any) -> None:
        cls = type(instance)
        self._call = None if _is_of_kserve(getattr(cls.__call__, "__module__", "")) else instance
        own = [getattr(cls, name, None) for name in ("preprocess", "predict", "explain", "postprocess")]
        overridden = [method for method in own if method is not None and not _is_of_kserve(method.__module__)]
        #: Whether the code waits. If it does not, it runs on a thread.
        self.is_async = (
            is_async(cls.__call__)
            if self._call is not None
            else any(is_async(method) or inspect.isasyncgenfunction(method) for method in overridden)
            or own[1] not in overridden
        )
        #: The predictor that the model calls.
        self.predictor: Any = None
        self._preprocess, self._predict, self._explain, self._postprocess = (
            _step(instance, step, most, _observer(step, settings.name, settings.version))
            for step, most in (("preprocess", 2), ("predict", 3), ("explain", 2), ("postprocess", 3))
        )
        self._validate = getattr(instance, "validate", None)

    async def run(self, body: Any, headers: Headers, answer_headers: Headers, verb: str) -> Any:
        """Returns what the model answers: a value, or a generator of values."""
        if self.predictor is not None:
            from kserve.context import set_predictor_config  # type: ignore[import-not-found]

            set_predictor_config(self.predictor)
        if self._call is not None:
            arguments = (body, headers, _verb(verb))
            call = self._call
            taken = len(inspect.signature(call).parameters)
            result = call(*arguments[:taken])
            return await result if inspect.isawaitable(result) else result
        payload = body
        if self._preprocess is not None:
            payload = await self._preprocess(payload, headers, answer_headers)
        if self._validate is not None:
            payload = self._validate(payload)
        if verb == "explain":
            if self._explain is None:
                raise NotImplementedError("the model does not implement `explain`")
            result = await self._explain(payload, headers, answer_headers)
        else:
            if self._predict is None:
                raise NotImplementedError("the model does not implement `predict`")
            result = await self._predict(payload, headers, answer_headers)
        if self._postprocess is not None and not (inspect.isgenerator(result) or inspect.isasyncgen(result)):
            result = await self._postprocess(result, headers, answer_headers)
        return result


def _step(instance: Any, name: str, most: int, observe: Callable[[float], None]) -> Optional[Callable[..., Any]]:
    """Returns a coroutine function that calls a method with as many of payload, headers and response headers as it takes."""
    method = getattr(instance, name, None)
    if method is None or (_is_of_kserve(getattr(method, "__module__", "")) and name in ("preprocess", "postprocess")):
        # Those of the base class return what they get.
        return None
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = 2 if takes_all and len(positional) < 2 else min(len(positional), most)

    async def run(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            result = method(*arguments[:taken])
            return await result if inspect.isawaitable(result) else result
        finally:
            observe(time.perf_counter() - started)

    return run


def _observer(step: str, name: str, version: Optional[str]) -> Callable[[float], None]:
    """Returns what observes the seconds of a step in KServe's histogram, which KServe's own package has already."""
    own = getattr(sys.modules.get("kserve.metrics"), _HISTOGRAMS[step], None)
    if own is not None:
        return own.labels(model_name=name).observe  # type: ignore[no-any-return]
    histogram = metrics.register(f"request_{step}_seconds", f"Seconds in `{step}` of models of KServe")
    return histogram.labels(name, version or "").observe  # type: ignore[no-any-return]


def _verb(verb: str) -> Any:
    from kserve.model import InferenceVerb

    return getattr(InferenceVerb, verb.upper())


async def _awaited(function: Optional[Callable[[], Any]]) -> Any:
    if function is None:
        return None
    result = function()
    return await result if inspect.isawaitable(result) else result


def _finished(coroutine: Any) -> Any:
    """Runs a coroutine that does not wait, and returns its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a plain method of the model returned something that waits: declare the method as `async def`")


async def _items(result: Any) -> AsyncIterator[Any]:
    if inspect.isasyncgen(result):
        async for item in result:
            yield item
    else:
        for item in result:
            yield item


async def _bounded(items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    size = 0
    async for item in items:
        chunk = _chunk(item)
        size = _checked(size + len(chunk))
        yield chunk


def _bounded_plain(items: Iterator[Any]) -> Iterator[bytes]:
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
    return bytes(item) if isinstance(item, (bytes, bytearray, memoryview)) else _to_json(item)


def _collected(chunks: List[bytes], headers: Headers) -> Reply:
    pairs = [("content-type", "text/event-stream"), *((str(name), str(value)) for name, value in headers.items())]
    return 200, pairs, b"".join(chunks)


class _KServeErrors:
    """Turns exceptions into those whose status and message KServe's server answers with."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, MLServerError):
            return
        from ._worker.failures import is_http_exception

        if is_http_exception(error):
            return
        # A predictor's answer; only errors of our module have it.
        passed_on = getattr(error, "http_status", None)
        if isinstance(passed_on, int):
            raise MLServerError(str(error), passed_on) from error
        for base in type(error).__mro__:
            status = _STATUSES.get(base.__name__)
            if status is not None and _is_of_kserve(base.__module__):
                raise MLServerError(str(error), status) from error
        if isinstance(error, NotImplementedError):
            raise MLServerError(str(error) or "not implemented", 501) from error
        raise MLServerError(f"{type(error).__name__} : {error}", 500) from error


# V1


def _v1_payload(head: Dict[str, Any], body: Any) -> Tuple[Headers, Any]:
    """Returns the headers and the parsed body of a request."""
    headers: Headers = {}
    for name, value in head["headers"]:
        headers[name] = value
    content_type = headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type not in _JSON_TYPES:
        return headers, bytes(body)
    try:
        # NaN and infinities are not JSON.
        return headers, json.loads(bytes(body), parse_constant=_refuse_constant)
    except RecursionError:
        raise MLServerError("Unrecognized request format: the JSON is nested too deeply", 400) from None
    except ValueError as error:
        raise MLServerError(f"Unrecognized request format: {error}", 400) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _v1_reply(result: Any, headers: Headers) -> Reply:
    pairs = [(str(name), str(value)) for name, value in headers.items() if name.lower() != "content-type"]
    if isinstance(result, (bytes, bytearray, memoryview)):
        pairs.insert(0, ("content-type", headers.get("content-type", "application/octet-stream")))
        return 200, pairs, bytes(result)
    pairs.insert(0, ("content-type", "application/json"))
    return 200, pairs, _to_json(result)


def _default(value: Any) -> Any:
    """Returns a value of NumPy, pandas or KServe as one of JSON."""
    for method in ("tolist", "to_dict", "model_dump"):
        convert = getattr(value, method, None)
        if convert is not None:
            return convert("records") if hasattr(value, "columns") else convert()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    raise TypeError(f"the model returned a {type(value).__name__}, which is not JSON")


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default)


def _to_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value).encode("utf-8", "replace")
    except RecursionError:
        raise MLServerError("the model's answer is nested too deeply, or contains itself", 500) from None
    except ValueError as error:
        if "Circular" in str(error):
            raise MLServerError("the model's answer contains itself", 500) from None
        # NaN and infinities become null.
        lenient = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_default)
        return json.dumps(jsonable(json.loads(lenient.encode(value))), separators=(",", ":")).encode("utf-8", "replace")


# V2


@functools.lru_cache(maxsize=None)
def _classes() -> Tuple[Any, Any, Any]:
    """Returns the classes of requests, inputs and requested outputs, of the package that is installed."""
    from kserve.protocol.infer_type import (  # type: ignore[import-not-found]
        InferInput,
        InferRequest,
        RequestedOutput,
    )

    class ReceivedInput(InferInput):  # type: ignore[misc]
        """An input over a received buffer, which becomes a list only if the model asks for one."""

        def __init__(self, tensor: RequestInput) -> None:
            super().__init__(tensor.name, list(tensor.shape), _name(tensor.datatype), None, _values(tensor.parameters))
            self._received: Optional[TensorData] = tensor.data

        @property
        def data(self) -> Any:
            if self._received is not None:
                self._data, self._received = self._received.root, None
            return self._data

        @data.setter
        def data(self, value: Any) -> None:
            self._data, self._received = value, None

        def set_data_from_numpy(self, *arguments: Any, **named: Any) -> Any:
            self._received = None
            return super().set_data_from_numpy(*arguments, **named)

        def as_numpy(self) -> Any:
            received = self._received
            elements = None if received is None else received.elements
            if isinstance(elements, FixedElements) and elements.datatype != "BF16":
                array = elements.numpy()
                if array.size == _count(self.shape):
                    return array.reshape(self.shape)
            self._data = self.data
            return super().as_numpy()

        def as_string(self) -> Any:
            self._data = self.data
            return super().as_string()

        def to_dict(self) -> Any:
            self._data = self.data
            return super().to_dict()

    class ReceivedRequest(InferRequest):  # type: ignore[misc]
        """A request whose outputs may always be raw: the server writes them in the form that the client has asked for."""

        use_binary_outputs = True

    return ReceivedRequest, ReceivedInput, RequestedOutput


def _count(shape: Any) -> int:
    count = 1
    for dimension in shape:
        count *= dimension
    return count


def _name(datatype: Any) -> str:
    return str(getattr(datatype, "value", datatype))


def _values(parameters: Any) -> Dict[str, Any]:
    """Returns parameters as a dictionary."""
    if parameters is None:
        return {}
    return {name: value for name, value in parameters.__dict__.items() if value is not None}


def _metadata_tensor(tensor: Dict[str, Any]) -> MetadataTensor:
    return MetadataTensor(
        name=str(tensor["name"]), datatype=_name(tensor["datatype"]), shape=[int(size) for size in tensor["shape"]]
    )


def _inference_response(name: str, version: Optional[str], result: Any) -> InferenceResponse:
    """Converts what a model of KServe returns for a request of the V2 protocol."""
    if isinstance(result, InferenceResponse):
        return result
    if isinstance(result, dict):
        outputs: Any = result.get("outputs")
        if not isinstance(outputs, list):
            raise MLServerError("the model returned a dictionary without a list of `outputs`", 500)
        parameters = result.get("parameters")
        converted = [
            _output(o.get("name"), o.get("shape"), o.get("datatype"), o.get("parameters"), o.get("data"), None)
            for o in outputs
        ]
    elif hasattr(result, "outputs"):
        parameters = result.parameters
        converted = [
            _output(o.name, o.shape, o.datatype, o.parameters, o.data, getattr(o, "_raw_data", None))
            for o in result.outputs
        ]
    else:
        raise MLServerError(
            f"the model returned a {type(result).__name__} for a request of the V2 protocol, expected an InferResponse",
            500,
        )
    return InferenceResponse(
        model_name=name, model_version=version, outputs=converted, parameters=_plain_parameters(parameters) or None
    )


def _output(name: Any, shape: Any, datatype: Any, parameters: Any, data: Any, raw: Any) -> ResponseOutput:
    datatype = _name(datatype)
    shape = [int(size) for size in shape or ()]
    values = _plain_parameters(parameters)
    values.pop("binary_data_size", None)
    output = ResponseOutput(name=str(name), shape=shape, datatype=datatype, data=[], parameters=values or None)
    output.data = TensorData(_elements(output, datatype, data, raw))
    return output


def _elements(output: ResponseOutput, datatype: str, data: Any, raw: Any) -> Any:
    if raw is not None:
        return unpack(output, bytes(raw)) if datatype == "BYTES" else FixedElements(datatype, memoryview(bytes(raw)))
    if hasattr(data, "ListFields"):
        # Contents of a message of gRPC: the only field that is set.
        fields = data.ListFields()
        return list(fields[0][1]) if fields else []
    return data if data is not None else []


def _plain_parameters(parameters: Any) -> Dict[str, Any]:
    """Returns the parameters of a response, which may be messages of gRPC, as a dictionary."""
    plain = {}
    for name, value in dict(parameters or {}).items():
        if hasattr(value, "WhichOneof"):
            field: Union[str, None] = value.WhichOneof("parameter_choice")
            value = None if field is None else getattr(value, field)
        if value is not None:
            plain[str(name)] = value
    return plain
