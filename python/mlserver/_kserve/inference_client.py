"""Clients of inference servers over REST and gRPC."""

import asyncio
import contextlib
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .._http import HttpPool, Response, Unreachable
from .constants.constants import INFERENCE_CONTENT_LENGTH_HEADER, MAX_GRPC_MESSAGE_LENGTH, PredictorProtocol
from .errors import InferenceError, InvalidInput, UnsupportedProtocol
from .logging import trace_logger as logger
from .protocol.infer_type import InferRequest, InferResponse, _json
from .utils.utils import is_v1, is_v2

__all__ = [
    "USE_CLIENT_DEFAULT",
    "HTTPStatusError",
    "InferenceGRPCClient",
    "InferenceRESTClient",
    "RESTConfig",
    "Unreachable",
]


class _UseClientDefault:
    """The type of `USE_CLIENT_DEFAULT`."""


#: The timeout of the client.
USE_CLIENT_DEFAULT = _UseClientDefault()

#: Headers of a predictor's response that belong to its connection or body, and not to the transformer's response.
_OWN_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "date",
        INFERENCE_CONTENT_LENGTH_HEADER,
        "keep-alive",
        "server",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class HTTPStatusError(InferenceError):
    """The server answered with an error."""

    def __init__(self, response: Response) -> None:
        self.response = response
        status = f"'{response.status_code} {response.reason}' for url '{response.url}'"
        super().__init__(f"{_error_of(response)}, {status}", status=response.status_code)
        #: What the transformer answers: the predictor's error, or that it did not answer at all.
        self.http_status = response.status_code if 400 <= response.status_code < 600 else 502

    def __str__(self) -> str:
        return str(self.reason)


def _error_of(response: Response) -> str:
    """Returns the `error` of a JSON body, or what there is of one."""
    if response.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return ""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return ""
    return str(body["error"]) if isinstance(body, dict) and "error" in body else str(body)


class RESTConfig:
    """How a client calls servers over REST."""

    def __init__(
        self,
        transport: Any = None,
        protocol: Union[str, PredictorProtocol] = PredictorProtocol.REST_V1.value,
        retries: int = 3,
        http2: bool = False,
        timeout: Any = 60,
        cert: Any = None,
        verify: Any = True,
        auth: Any = None,
        verbose: bool = False,
    ) -> None:
        if transport is not None or http2:
            what = "transport" if transport is not None else "http2"
            raise ValueError(f"RESTConfig does not support `{what}`: requests are sent over HTTP/1.1 (leave it out)")
        self.transport = transport
        self.protocol = protocol.value if isinstance(protocol, PredictorProtocol) else protocol
        self.retries = retries
        self.http2 = http2
        self.timeout = timeout
        self.cert = cert
        self.verify = verify
        self.auth = auth
        self.verbose = verbose


class InferenceRESTClient:
    """A client of servers that speak V1 or V2 over REST."""

    def __init__(self, config: Optional[RESTConfig] = None) -> None:
        self._config = RESTConfig() if config is None else config
        auth = self._config.auth
        if auth is not None and not (isinstance(auth, tuple) and len(auth) == 2):
            raise ValueError("RESTConfig does not support this `auth`: expected a user and a password")
        self._client = HttpPool(self._config.retries, self._config.verify, self._config.cert, auth)

    async def infer(
        self,
        base_url: Any,
        data: Union[InferRequest, Dict[str, Any]],
        model_name: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        response_headers: Optional[Dict[str, str]] = None,
        is_graph_endpoint: bool = False,
        timeout: Any = USE_CLIENT_DEFAULT,
    ) -> Union[InferResponse, Dict[str, Any]]:
        """Asks for a prediction. An inference graph has no model name, and answers with a dictionary."""
        path = "" if is_graph_endpoint else self._path(model_name, ":predict", "/infer")
        sent = _lower(headers)
        body: bytes
        if isinstance(data, InferRequest):
            content, json_length = data.to_rest()
            if isinstance(content, bytes):
                sent["content-type"] = "application/octet-stream"
                sent[INFERENCE_CONTENT_LENGTH_HEADER] = str(json_length)
                body = content
            else:
                sent.setdefault("content-type", "application/json")
                body = _json(content)
        elif isinstance(data, (bytes, bytearray)):
            body = bytes(data)
        else:
            sent.setdefault("content-type", "application/json")
            body = _json(data)
        response = await self._send("POST", _join(base_url, path), sent, body, timeout)
        if response_headers is not None:
            passed = {name: value for name, value in response.headers.items() if name not in _OWN_HEADERS}
            response_headers.update(passed)
        if is_graph_endpoint or is_v1(self._config.protocol):
            answer: Dict[str, Any] = _parsed(response)
            return answer
        return _v2_response(response)

    async def explain(
        self,
        base_url: Any,
        model_name: str,
        data: Any,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Any = USE_CLIENT_DEFAULT,
    ) -> Dict[str, Any]:
        """Asks for an explanation, which only V1 has."""
        if not is_v1(self._config.protocol):
            raise UnsupportedProtocol(self._config.protocol)
        sent = {"content-type": "application/json", **_lower(headers)}
        url = _join(base_url, self._path(model_name, ":explain", ""))
        answer: Dict[str, Any] = _parsed(await self._send("POST", url, sent, _json(data), timeout))
        return answer

    async def is_server_ready(
        self, base_url: Any, headers: Optional[Mapping[str, str]] = None, timeout: Any = USE_CLIENT_DEFAULT
    ) -> bool:
        """Whether a V2 server is ready."""
        if not is_v2(self._config.protocol):
            raise UnsupportedProtocol(self._config.protocol)
        return await self._flag(_join(base_url, "/v2/health/ready"), "ready", headers, timeout)

    async def is_server_live(
        self, base_url: Any, headers: Optional[Mapping[str, str]] = None, timeout: Any = USE_CLIENT_DEFAULT
    ) -> bool:
        """Whether a server is alive."""
        if is_v2(self._config.protocol):
            return await self._flag(_join(base_url, "/v2/health/live"), "live", headers, timeout)
        if not is_v1(self._config.protocol):
            raise UnsupportedProtocol(self._config.protocol)
        answer = _parsed(await self._send("GET", _join(base_url, "/"), _lower(headers), None, timeout))
        return isinstance(answer, dict) and str(answer.get("status")).lower() == "alive"

    async def is_model_ready(
        self,
        base_url: Any,
        model_name: str,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Any = USE_CLIENT_DEFAULT,
    ) -> bool:
        """Whether a model is ready."""
        url = _join(base_url, self._path(model_name, "", "/ready"))
        try:
            response = await self._send("GET", url, _lower(headers), None, timeout)
        except HTTPStatusError as error:
            if is_v2(self._config.protocol) or error.response.status_code == 503:
                return False
            raise
        if is_v2(self._config.protocol):
            return True
        answer = _parsed(response)
        return _is_true(answer, "ready")

    async def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    async def __aenter__(self) -> "InferenceRESTClient":
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    def _path(self, model_name: Optional[str], v1: str, v2: str) -> str:
        if model_name is None:
            raise ValueError("model_name should not be 'None'")
        if is_v1(self._config.protocol):
            return f"/v1/models/{model_name}{v1}"
        if is_v2(self._config.protocol):
            return f"/v2/models/{model_name}{v2}"
        raise UnsupportedProtocol(self._config.protocol)

    async def _flag(self, url: str, field: str, headers: Optional[Mapping[str, str]], timeout: Any) -> bool:
        response = await self._send("GET", url, _lower(headers), None, timeout)
        if not response.content:  # MLServer 1.x answers with the status alone
            return True
        answer = _parsed(response)
        return _is_true(answer, field)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: Optional[bytes], timeout: Any
    ) -> Response:
        limit = _seconds(self._config.timeout if isinstance(timeout, _UseClientDefault) else timeout)
        if self._config.verbose:
            logger.info("url: %s, timeout: %s", url, limit)
        response = await self._client.request(method, url, headers, body, limit)
        if self._config.verbose:
            logger.info("url: %s, status: %s", url, response.status_code)
        if not 200 <= response.status_code < 300:
            raise HTTPStatusError(response)
        return response


def _is_true(answer: Any, field: str) -> bool:
    """Whether a field is true, or, as earlier versions of KServe have it, its name."""
    return isinstance(answer, dict) and str(answer.get(field)).lower() == "true"


def _seconds(timeout: Any) -> Optional[float]:
    """Returns how long a call may take. Of separate times for connecting, reading and so on, it is the sum."""
    if timeout is None:
        return None
    if isinstance(timeout, (int, float)):
        return float(timeout)
    if not isinstance(timeout, tuple):
        timeout = (timeout.connect, timeout.read, timeout.write, timeout.pool)
    return None if any(part is None for part in timeout) else float(sum(timeout))


def _lower(headers: Optional[Mapping[str, str]]) -> Dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}


def _join(base_url: Any, path: str) -> str:
    base = str(base_url)
    return base.rstrip("/") + path if path else base


def _parsed(response: Response) -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError) as error:
        raise InferenceError(f"{response.url} answered with invalid JSON: {error}") from error


def _v2_response(response: Response) -> InferResponse:
    length = response.headers.get(INFERENCE_CONTENT_LENGTH_HEADER)
    try:
        if length is None:
            return InferResponse.from_rest(json.loads(response.content))
        return InferResponse.from_bytes(response.content, int(length))
    except (InvalidInput, ValueError, AttributeError, RecursionError) as error:
        raise InferenceError(f"{response.url} answered with an invalid V2 response: {error}") from error


#: What a transformer answers for the code with which its predictor has ended a call.
_GRPC_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class InferenceGRPCClient:
    """A client of servers that speak V2 over gRPC. Requires `grpcio` and `protobuf`."""

    def __init__(
        self,
        url: str,
        verbose: bool = False,
        use_ssl: bool = False,
        root_certificates: Optional[str] = None,
        private_key: Optional[str] = None,
        certificate_chain: Optional[str] = None,
        creds: Any = None,
        channel_args: Optional[List[Tuple[str, Any]]] = None,
        timeout: Optional[float] = 60,
        retries: Optional[int] = 3,
    ) -> None:
        try:
            import grpc

            from .protocol.grpc import grpc_predict_v2_pb2
            from .protocol.grpc import grpc_predict_v2_pb2_grpc as stubs
        except ImportError as error:
            raise ImportError(
                f"cannot call {url} over gRPC: {error} (install `grpcio` and `protobuf`, or use the protocol v1 or v2)"
            ) from error
        self._messages: Any = grpc_predict_v2_pb2
        stub: Any = vars(stubs)["GRPCInferenceServiceStub"]
        options: List[Tuple[str, Any]] = [
            ("grpc.max_send_message_length", MAX_GRPC_MESSAGE_LENGTH),
            ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE_LENGTH),
        ]
        if retries:
            options += [("grpc.enable_retries", 1), ("grpc.service_config", _retry_policy(retries))]
        # Options of the caller replace those of the same name.
        merged = {**dict(options), **dict(channel_args or ())}
        if creds is None and use_ssl:
            files = [
                None if path is None else _contents(path)
                for path in (root_certificates, private_key, certificate_chain)
            ]
            creds = grpc.ssl_channel_credentials(*files)
        arguments: Dict[str, Any] = {"target": url, "options": list(merged.items())}
        # A channel of threads rather than of asyncio, whose channels work in one event loop only.
        if creds is None:
            self._channel = grpc.insecure_channel(**arguments)
        else:
            self._channel = grpc.secure_channel(credentials=creds, **arguments)
        self._client_stub = stub(self._channel)
        self._verbose = verbose
        self._timeout = timeout

    async def __aenter__(self) -> "InferenceGRPCClient":
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    async def infer(
        self,
        infer_request: InferRequest,
        timeout: Union[float, _UseClientDefault, None] = USE_CLIENT_DEFAULT,
        headers: Optional[Sequence[Tuple[str, str]]] = None,
    ) -> InferResponse:
        """Asks for a prediction."""
        if isinstance(infer_request, InferRequest):
            request = infer_request.to_grpc()
        elif isinstance(infer_request, self._messages.ModelInferRequest):
            request = infer_request
        else:
            raise InvalidInput(f"Unsupported request type {type(infer_request)}: expected an InferRequest")
        return InferResponse.from_grpc(await self._call("ModelInfer", request, timeout, headers))

    async def is_server_ready(
        self,
        timeout: Union[float, _UseClientDefault, None] = USE_CLIENT_DEFAULT,
        headers: Optional[Sequence[Tuple[str, str]]] = None,
    ) -> bool:
        """Whether the server is ready."""
        answer = await self._call("ServerReady", self._messages.ServerReadyRequest(), timeout, headers)
        return bool(answer.ready)

    async def is_server_live(
        self,
        timeout: Union[float, _UseClientDefault, None] = USE_CLIENT_DEFAULT,
        headers: Optional[Sequence[Tuple[str, str]]] = None,
    ) -> bool:
        """Whether the server is alive."""
        answer = await self._call("ServerLive", self._messages.ServerLiveRequest(), timeout, headers)
        return bool(answer.live)

    async def is_model_ready(
        self,
        model_name: str,
        timeout: Union[float, _UseClientDefault, None] = USE_CLIENT_DEFAULT,
        headers: Optional[Sequence[Tuple[str, str]]] = None,
    ) -> bool:
        """Whether a model is ready. One that the server does not have is not."""
        import grpc

        request = self._messages.ModelReadyRequest(name=model_name)
        try:
            answer = await self._call("ModelReady", request, timeout, headers)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return False
            raise
        return bool(answer.ready)

    async def _call(self, method: str, request: Any, timeout: Any, headers: Optional[Sequence[Tuple[str, str]]]) -> Any:
        limit = self._timeout if isinstance(timeout, _UseClientDefault) else timeout
        if self._verbose:
            logger.info("method: %s, timeout: %s", method, limit)
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        metadata = tuple(headers.items()) if isinstance(headers, Mapping) else headers
        call = getattr(self._client_stub, method).future(request, timeout=limit, metadata=metadata)

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def wake(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the caller is gone
                loop.call_soon_threadsafe(finish)

        call.add_done_callback(wake)
        try:
            await done
        except asyncio.CancelledError:
            call.cancel()
            raise
        import grpc

        try:
            return call.result()
        except grpc.RpcError as error:
            error.http_status = _GRPC_STATUSES.get(error.code().name, 500)
            raise


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _retry_policy(retries: int) -> str:
    """Returns the configuration of a channel that tries calls again which the server did not take."""
    policy = {
        "maxAttempts": min(max(retries, 2), 5),
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
