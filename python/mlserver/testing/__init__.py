"""Runs models in the process of their tests, as a worker of the server runs them.

    import mlserver.testing

    with mlserver.testing.serve(MyModel, parameters={"uri": "./model.bin"}) as model:
        response = model.infer([NumpyCodec.encode_input("x", values)])

Requests and responses pass through the frames of a worker, and the code of the worker runs the model: what fails there
fails here, with the status and the message that a client of the server receives.

These parts of the server are missing: ports, batching, the response cache, validation of inputs, warm-up, the limits of
queues and memory, and the restart of workers. Models run on other threads than the main thread, and what they print is
not forwarded.
"""

import os
import uuid
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Type, Union
from urllib.parse import unquote

from .._dump import jsonable, to_json
from .._text import read_json_file
from .._worker.frames import FrameError, FrameKind
from ..model import MLModel
from ..settings import ModelParameters, ModelSettings
from ..types import InferenceRequest, InferenceResponse, MetadataModelResponse, RequestInput
from ._errors import InferenceFailed, LoadFailed, ModelFailed, UnloadFailed
from ._messages import (
    Frame,
    RequestLike,
    Response,
    Route,
    as_request,
    read_answer,
    read_reply,
    stream_frames,
    write_request,
)
from ._worker import GRACE, Call, Worker

__all__ = ["InferenceFailed", "LoadFailed", "ModelFailed", "Response", "ServedModel", "UnloadFailed", "serve"]

#: The number of the model in frames: a worker has one model.
_MODEL = 1
#: How many responses of a stream may wait for their reader, as in the server.
_STREAM_CREDIT = 4
#: How many parts of a reply may come: `call` returns all of them together.
_CALL_CREDIT = 1 << 30


def serve(
    model: Union[Type[MLModel], str, "os.PathLike[str]"],
    *,
    name: Optional[str] = None,
    parameters: Union[Mapping[str, Any], ModelParameters, None] = None,
    folder: Union[str, "os.PathLike[str]", None] = None,
    **settings: Any,
) -> "ServedModel":
    """Loads a model and returns it. Unload it with `close()`, or use it in a `with` block.

    `model` is a class, its import path (`"models.MyModel"`), or the path of a `model-settings.json` or its folder. The
    other arguments override the settings in that file. `parameters` are those of the settings, without the file's.

    Relative paths, such as that of `uri`, are relative to `folder`, from which modules are imported, too. It defaults to
    the folder of the settings file. `parallel_workers=0` runs all code on one thread, as in the server.

    Raises `LoadFailed` if the model cannot be loaded. If its `load` returns false, the model is not `ready`.
    """
    values: Dict[str, Any] = {}
    source: Optional[str] = None if folder is None else os.path.join(os.path.abspath(folder), "model-settings.json")
    found = _settings_file(model)
    if found is not None:
        source = os.path.abspath(found) if source is None else source
        values = read_json_file(found)
    else:
        values["implementation"] = model
        values["name"] = model.__name__ if isinstance(model, type) else str(model).rpartition(".")[2]
    values.update(settings)
    if name is not None:
        values["name"] = name
    if parameters is not None:
        given = parameters.model_dump() if isinstance(parameters, ModelParameters) else parameters
        values["parameters"] = dict(given)
    resolved = _resolve(values, source)
    return ServedModel(resolved, model if isinstance(model, type) else None)


def _settings_file(model: Any) -> Optional[str]:
    """Returns the path of a settings file if `model` is that of the file or its folder."""
    if isinstance(model, type):
        return None
    path = os.fspath(model)
    if os.path.isdir(path):
        return os.path.join(path, "model-settings.json")
    return path if isinstance(model, os.PathLike) or path.endswith(".json") else None


def _resolve(values: Dict[str, Any], source: Optional[str]) -> ModelSettings:
    """Returns settings as the server resolves them: name and URI default to those of the folder."""
    settings = ModelSettings.from_source(values, source)
    folder = os.path.dirname(source) if source is not None else ""
    if not settings.name:
        settings.name = os.path.basename(folder)
    if settings.parameters is None:
        settings.parameters = ModelParameters()
    if settings.parameters.uri is None and folder:
        settings.parameters.uri = folder
    return settings


#: The handler with which a model of KServe answers whether it is ready.
_READY = "v1:ready"


class ServedModel:
    """A loaded model. Its methods may be called from any thread, and at the same time."""

    def __init__(self, settings: ModelSettings, implementation: Optional[Type[MLModel]]) -> None:
        """Use `serve` instead."""
        self._worker = Worker(implementation, inline=settings.parallel_workers == 0)
        dumped = settings.model_dump(mode="json", by_alias=True, exclude_none=False)
        head = {"model": _MODEL, "settings": dumped, "source": settings._source}
        try:
            loaded = self._worker.call(FrameKind.LOAD, head).final(LoadFailed).head
            self._routes = [Route(**handler) for handler in loaded["handlers"]]
            #: Its metadata, as `GET /v2/models/{name}` reports it.
            self.metadata = MetadataModelResponse(**loaded["metadata"])
        except BaseException:
            self._worker.stop()
            raise
        self._is_closed = False
        self._streams: bool = loaded["streams"]
        #: The name of the model.
        self.name = settings.name
        #: The version of the model, if it has one.
        self.version = settings.version
        self._has_loaded: bool = loaded["ready"]

    def __enter__(self) -> "ServedModel":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.close()
        except UnloadFailed:
            if kind is None:
                raise

    @property
    def ready(self) -> bool:
        """Whether the model answers requests: the result of its `load`, and the answer of a model of KServe."""
        if not any(route.name == _READY for route in self._routes) or not self._has_loaded:
            return self._has_loaded
        head = {"model": _MODEL, "handler": _READY, "method": "GET", "path": "", "path_params": {}, "query": "", "headers": []}
        return read_reply(self._call(FrameKind.CALL, head).final(InferenceFailed)).status == 200

    @property
    def instance(self) -> Any:
        """The instance of the class, to look into and to patch. Its methods are called on other threads."""
        return self._worker.service.models[_MODEL].instance

    @property
    def metrics(self) -> Dict[str, List[float]]:
        """The values that `mlserver.log` and `mlserver.register` have observed for this model so far, by metric."""
        if not self._is_closed:
            self._worker.scrape()
        return {name: list(values) for name, values in self._worker.observed.items()}

    def infer(
        self,
        request: RequestLike,
        *,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> InferenceResponse:
        """Returns the response to a request.

        `request` is an `InferenceRequest`, a dictionary such as the JSON that clients send, or a list of inputs. `headers`
        are those of the client. After `timeout` seconds, the request is cancelled, and fails with status 504.

        BYTES in the response are `str` if they are UTF-8, as clients over REST see them.

        Raises `InferenceFailed`.
        """
        self._check_ready()
        prepared = as_request(request, headers)
        head, tail = write_request(prepared)
        call = self._call(FrameKind.PREDICT, {"model": _MODEL, **head}, tail)
        return self._read(call.final(InferenceFailed, timeout), prepared.id)

    def infer_stream(
        self, requests: Iterable[RequestLike], *, headers: Optional[Mapping[str, str]] = None
    ) -> Iterator[InferenceResponse]:
        """Yields the responses to a stream of requests, which is often a list of one.

        The model is called when the first response is requested. If the iterator is closed early, the model is cancelled, as
        if the client had disconnected. A model without `predict_stream` answers the first request with `predict`.

        Raises `InferenceFailed`, after the responses that the model has sent before.
        """
        self._check_ready()
        if isinstance(requests, (InferenceRequest, RequestInput, Mapping)):
            raise TypeError("`infer_stream` expects a list of requests, or another iterable; this is one request")
        return self._stream(iter(requests), headers)

    def _stream(
        self, requests: Iterator[RequestLike], headers: Optional[Mapping[str, str]]
    ) -> Iterator[InferenceResponse]:
        first = next((as_request(request, headers) for request in requests), None)
        if not self._streams:
            if first is not None:
                yield self.infer(first)
            return
        request_id = first.id if first is not None else str(uuid.uuid4())
        call = self._call(FrameKind.STREAM, {"model": _MODEL, "request": request_id, "credit": _STREAM_CREDIT})
        items = stream_frames(first, requests, headers, request_id)
        try:
            while True:
                frame = call.next()
                if frame is not None and frame.kind == FrameKind.CREDIT:
                    for _ in range(frame.head["count"]):
                        call.send(*next(items, (FrameKind.END, {}, ())))
                elif frame is not None and frame.kind == FrameKind.ANSWER:
                    yield self._read(frame, request_id)
                    call.send(FrameKind.CREDIT, {"count": 1})
                else:
                    call.check(frame, InferenceFailed)
                    return
        finally:
            call.cancel()

    def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: Union[bytes, str] = b"",
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> Response:
        """Calls the custom handler with this method and path, which may contain a query string.

        If `json` is not `None`, it is the body.

        Raises `InferenceFailed` if the handler raises an exception other than an `HTTPException`, with status 422 for
        invalid arguments, and with 404 or 405 if no handler has this path or method.
        """
        self._check_ready()
        sent = dict(headers or {})
        if json is not None:
            body = to_json(jsonable(json))
            sent = {"content-type": "application/json", **sent}
        path, _, query = path.partition("?")
        path, method = unquote(path), method.upper()
        name, values = self._route(method, path)
        pairs = [(key.lower(), value.encode().decode("latin-1")) for key, value in sent.items()]
        head = {"model": _MODEL, "handler": name, "method": method, "path": path, "path_params": values}
        data = body.encode() if isinstance(body, str) else body
        head = {**head, "query": query, "headers": pairs, "credit": _CALL_CREDIT}
        call = self._call(FrameKind.CALL, head, (data,))
        return read_reply(call.replied(InferenceFailed, timeout))

    def close(self) -> None:
        """Unloads the model. Does nothing if it has been unloaded already.

        Raises `UnloadFailed`.
        """
        if self._is_closed:
            return
        _ = self.metrics
        self._is_closed = True
        # Cancelled code that still runs would delay the end of the test forever.
        timeout = GRACE if self._worker.is_hung else None
        try:
            call = self._worker.call(FrameKind.UNLOAD, {"model": _MODEL})
            call.final(UnloadFailed, timeout, "the model cannot be unloaded while its code runs")
        finally:
            self._worker.stop()

    def _call(self, kind: FrameKind, head: Dict[str, Any], tail: Tuple[Any, ...] = ()) -> Call:
        try:
            return self._worker.call(kind, head, tail)
        except FrameError as error:
            raise InferenceFailed(400, str(error)) from None

    def _check_ready(self) -> None:
        if self._is_closed:
            raise ValueError(f"model {self.name} has been closed")
        if not self._has_loaded:
            version = f" with version {self.version}" if self.version is not None else ""
            raise InferenceFailed(400, f"Model {self.name}{version} is not ready yet.")

    def _route(self, method: str, path: str) -> Tuple[str, Dict[str, str]]:
        """Returns the name of the handler, and the values of the parameters in its path."""
        wanted = "GET" if method == "HEAD" else method
        matching = [(route, route.match(path)) for route in self._routes]
        matching = [(route, values) for route, values in matching if values is not None]
        for route, values in matching:
            if route.method == wanted:
                return route.name, values or {}
        if matching:
            raise InferenceFailed(405, f"{path} does not support {method}")
        raise InferenceFailed(404, f"no such path: {path}")

    def _read(self, frame: Frame, request_id: Optional[str]) -> InferenceResponse:
        return read_answer(frame, self.name, self.version, request_id)
