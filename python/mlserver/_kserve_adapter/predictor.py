"""Predictors that are models of the same server, which transformers ask without a network."""

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from .._payload import inference_response
from .._worker.frames import read_tensors, write_tensors
from .._worker_model import Asker
from ..cancellation import cancellation_var
from ..errors import MLServerError
from ..settings import ModelSettings
from .tensors import http_parameters, lazy_tensor, output_of
from .v1 import FRAMING, to_json

if TYPE_CHECKING:
    from .package import Package


def served_predictor(settings: ModelSettings) -> Optional[str]:
    """Returns the name in `parameters.extra.predictor`.

    Raises `MLServerError` if it is not a name, or if there is a `predictor_host`, too.
    """
    extra = (settings.parameters.extra if settings.parameters is not None else None) or {}
    name = extra.get("predictor")
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise MLServerError(f"invalid `predictor` {name!r} in `parameters.extra`: use the name of a model of this server", 500)
    if extra.get("predictor_host") is not None:
        raise MLServerError(
            f"`parameters.extra` has both `predictor` ({name!r}) and `predictor_host` ({extra['predictor_host']!r}): "
            "use `predictor` for a model of this server, and `predictor_host` for one of another server",
            500,
        )
    return name


class ServedPredictor:
    """Does what KServe's `InferenceRESTClient` does for transformers, with a model of this server.

    The request takes part in the one that the transformer answers: it needs no further slot, and ends with it.
    """

    def __init__(self, name: str, protocol: str, package: "Package") -> None:
        self._name = name
        self._protocol = protocol
        self._infer_type = package.infer_type
        self._lazy_output = lazy_tensor(package.infer_type.InferOutput)

    async def infer(
        self,
        base_url: Any,
        data: Any,
        model_name: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        response_headers: Optional[Dict[str, str]] = None,
        is_graph_endpoint: bool = False,
        timeout: Any = None,
    ) -> Any:
        """Asks the predictor, in the form of `data`: a request of V2, or a body of V1. Other arguments have no effect."""
        call = cancellation_var.get()
        if not isinstance(call, Asker):
            raise MLServerError(f"predictor `{self._name}` can be called only while a request is answered", 500)
        pairs = [[str(name).lower(), str(value)] for name, value in (headers or {}).items()]
        # The server counts the steps of a request itself.
        pairs = [pair for pair in pairs if pair[0] != "request-depth"]
        if isinstance(data, dict) and self._protocol == "v2":
            data = self._request_of(data)
        if isinstance(data, self._infer_type.InferRequest):
            return await self._infer_v2(call, data, pairs, response_headers)
        return await self._predict_v1(call, data, pairs, response_headers)

    async def close(self) -> None:
        """Does nothing."""

    async def _predict_v1(
        self, call: Asker, data: Any, headers: List[List[str]], response_headers: Optional[Dict[str, str]]
    ) -> Any:
        body = bytes(data) if isinstance(data, (bytes, bytearray)) else to_json(data)
        headers = [pair for pair in headers if pair[0] != "content-type"] + [["content-type", "application/json"]]
        head, answer = await call.ask(self._name, {"v1": True, "headers": headers}, (body,))
        status = head["status"]
        if status != 200:
            raise MLServerError(_error_of(answer), status)
        _pass_on(head, response_headers)
        return json.loads(bytes(answer))

    async def _infer_v2(
        self, call: Asker, data: Any, headers: List[List[str]], response_headers: Optional[Dict[str, str]]
    ) -> Any:
        headers = [pair for pair in headers if pair[0] != "content-type"]
        sent = inference_response(self._name, None, [output_of(tensor) for tensor in data.inputs])
        tensors, tail = write_tensors(sent)
        outputs = [output.name for output in getattr(data, "request_outputs", None) or ()]
        head: Dict[str, Any] = {"id": data.id or "", "headers": headers, "outputs": outputs}
        parameters = http_parameters(data.parameters)
        if parameters:
            head["parameters"] = parameters
        head["inputs"] = [json.loads(tensor) for tensor in tensors]
        answered, content = await call.ask(self._name, head, tail)
        _pass_on(answered, response_headers)
        found = [self._lazy_output(tensor) for tensor in read_tensors(answered, content)]
        return self._infer_type.InferResponse(
            response_id=data.id or "",
            model_name=self._name,
            infer_outputs=found,
            parameters=answered.get("parameters") or None,
        )

    def _request_of(self, body: Dict[str, Any]) -> Any:
        """Returns the request of a JSON body of V2."""
        infer_type = self._infer_type
        try:
            inputs = [
                infer_type.InferInput(each["name"], each["shape"], each["datatype"], each["data"], each.get("parameters"))
                for each in body["inputs"]
            ]
        except (KeyError, TypeError) as error:
            raise MLServerError(f"invalid request to predictor `{self._name}`: {error!r}", 400) from error
        return infer_type.InferRequest(self._name, inputs, request_id=body.get("id"), parameters=body.get("parameters"))


def _pass_on(head: Dict[str, Any], response_headers: Optional[Dict[str, str]]) -> None:
    """Adds the headers of the predictor's answer that do not describe its own body."""
    if response_headers is not None:
        response_headers.update({name: value for name, value in head.get("headers") or () if name not in FRAMING})


def _error_of(body: Any) -> str:
    """Returns the `error` of a reply of V1, or its beginning."""
    try:
        found = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return bytes(body[:1000]).decode("utf-8", "replace")
    return str(found["error"]) if isinstance(found, dict) and "error" in found else str(found)[:1000]
