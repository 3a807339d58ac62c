"""Transformers and explainers, and the clients of the `kserve` module."""

import asyncio
import concurrent.futures
import http.server
import json
import pathlib
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from executable import direct, needs_executable, serving
from mlserver._http import HttpPool
from mlserver._kserve import context, errors
from mlserver._kserve import inference_client as clients
from mlserver._kserve.inference_client import HTTPStatusError, InferenceRESTClient, RESTConfig, Unreachable
from mlserver._kserve.model import InferenceVerb, Model
from mlserver._kserve.predictor_config import PredictorConfig
from mlserver._kserve.protocol.infer_type import InferInput, InferRequest, InferResponse, RequestedOutput
from mlserver._kserve.utils.inference_client_factory import InferenceClientFactory
from mlserver._kserve_adapter.failures import translated
from mlserver.errors import MLServerError
from worker import LOADED, Worker

Answer = Tuple[int, str, bytes]

V2_ANSWER = b'{"model_name":"m","id":"1","outputs":[{"name":"n","shape":[1],"datatype":"FP32","data":[1.5]}]}'


class Predictor:
    """A server that records requests."""

    def __init__(self, context: Any = None) -> None:
        self.requests: List[Tuple[str, str, Dict[str, str], bytes]] = []
        self.connections = 0
        self.answer: Callable[[str], Answer] = lambda path: (200, "application/json", b'{"predictions":[1]}')
        #: Requests wait for it, and then tell that they have arrived.
        self.proceed = threading.Event()
        self.proceed.set()
        self.arrived = threading.Event()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # one packet

            def setup(self) -> None:
                super().setup()
                owner.connections += 1

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                owner.requests.append((self.command, self.path, headers, self.rfile.read(size)))
                owner.arrived.set()
                owner.proceed.wait(60)
                status, kind, body = owner.answer(self.path)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("X-Seen", "yes")
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass  # clients that leave are part of the tests

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.host = f"127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.proceed.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(60)


@pytest.fixture
def predictor() -> Iterator[Predictor]:
    server = Predictor()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _no_predictor() -> Iterator[None]:
    token = context._predictor_config_var.set(None)
    yield
    context._predictor_config_var.reset(token)
    asyncio.run(InferenceClientFactory().close())


def predict(payload: Any, headers: Any = None, response_headers: Any = None, name: str = "m") -> Any:
    return asyncio.run(Model(name).predict(payload, headers, response_headers))


def status_and_message(error: Exception) -> Tuple[int, str]:
    """Returns what a transformer answers if its predictor fails."""
    found = translated(error)
    assert isinstance(found, MLServerError)
    return found.status_code, str(found)


def test_transformer_calls_predictor_over_v1(predictor: Predictor) -> None:
    context.set_predictor_config(PredictorConfig(predictor.host))
    headers = {
        "Authorization": "Bearer x",
        "x-request-id": "7",
        "X-B3-TraceId": "3",
        "cookie": "secret",
        "content-type": "text/plain",
    }
    received: Dict[str, str] = {}

    answer = predict({"instances": [1, 2]}, headers, received)

    assert answer == {"predictions": [1]}
    ((method, path, sent, body),) = predictor.requests
    assert (method, path, body) == ("POST", "/v1/models/m:predict", b'{"instances":[1,2]}')
    assert sent["content-type"] == "application/json"
    assert (sent["authorization"], sent["x-request-id"], sent["x-b3-traceid"]) == ("Bearer x", "7", "3")
    assert "cookie" not in sent
    assert received == {"content-type": "application/json", "x-seen": "yes"}


ASKERS = '''
import kserve
from kserve.protocol.rest.openai import OpenAIProxyModel


class Plain(kserve.Model):
    def load(self):
        self.ready = True
        return True

    def predict(self, payload, headers=None):
        return payload


class Host(Plain):
    """Sets its predictor itself, as transformers of older versions do."""

    def load(self):
        self.predictor_host = "predictor:80"
        return super().load()


class Explained(Plain):
    def __init__(self, name):
        super().__init__(name)
        self.explainer_host = "explainer:80"


class Config(Plain):
    @property
    def predictor_config(self):
        from kserve.predictor_config import PredictorConfig

        return PredictorConfig("predictor:80", "v2")


class Proxy(OpenAIProxyModel):
    def __init__(self, name):
        super().__init__(name, "http://upstream:80")


class OwnUrl(Plain):
    """Has an attribute of its own that is called like that of the proxy."""

    predictor_url = "http://somewhere:80"


class Odd(Plain):
    predictor_host = 5

    @property
    def predictor_config(self):
        raise ValueError("mine")
'''


def test_models_whose_code_names_a_server_ask_servers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "askers.py").write_text(ASKERS)
    with Worker(paths=[str(tmp_path)]) as worker:
        found = {}
        for number, name in enumerate(["Plain", "Host", "Explained", "Config", "Proxy", "OwnUrl", "Odd"]):
            loaded = worker.load(f"askers.{name}", model=number, id=256 + number, name=name.lower())
            assert loaded.kind == LOADED, loaded.head
            found[name] = loaded.head.get("asks_servers", False)
        extra = {"predictor": "other"}
        found["Served"] = worker.load(
            "askers.Plain", model=9, id=300, name="served", parameters={"extra": extra}
        ).head.get("asks_servers", False)
        extra = {"predictor_host": "predictor:80"}
        found["Transformer"] = worker.load(
            "askers.Plain", model=10, id=301, name="transformer", parameters={"extra": extra}
        ).head.get("asks_servers", False)
    asking = {name for name, asks in found.items() if asks}
    assert asking == {"Host", "Explained", "Config", "Proxy", "Transformer"}


def test_transformer_calls_predictor_over_v2(predictor: Predictor) -> None:
    predictor.answer = lambda path: (200, "application/json", V2_ANSWER)
    context.set_predictor_config(PredictorConfig(predictor.host, "v2"))

    answer = predict(InferRequest("other", [InferInput("n", [1], "FP32", [1.5])], request_id="5"))

    assert isinstance(answer, InferResponse)
    assert answer.outputs[0].data == [1.5]
    ((_, path, _, body),) = predictor.requests
    assert path == "/v2/models/m/infer"
    assert json.loads(body) == {
        "id": "5",
        "model_name": "other",
        "inputs": [{"name": "n", "shape": [1], "datatype": "FP32", "data": [1.5]}],
    }


@pytest.mark.needs("numpy")
def test_transformer_sends_raw_data(predictor: Predictor) -> None:
    import numpy as np

    predictor.answer = lambda path: (200, "application/json", V2_ANSWER)
    context.set_predictor_config(PredictorConfig(predictor.host, "v2"))
    tensor = InferInput("n", [2], "FP16")
    tensor.set_data_from_numpy(np.array([1, 2], dtype=np.float16))

    predict(InferRequest("m", [tensor]))

    ((_, _, sent, body),) = predictor.requests
    length = int(sent["inference-header-content-length"])
    assert sent["content-type"] == "application/octet-stream"
    assert json.loads(body[:length])["inputs"][0]["parameters"] == {"binary_data_size": 4}
    assert body[length:] == np.array([1, 2], dtype=np.float16).tobytes()


def test_all_steps_of_transformer_run(predictor: Predictor) -> None:
    class Transformer(Model):
        def preprocess(self, payload: Any, headers: Any = None) -> Any:
            return {"instances": [2 * value for value in payload["instances"]]}

        def postprocess(self, result: Any, headers: Any = None, response_headers: Any = None) -> Any:
            return {**result, "by": self.name}

    context.set_predictor_config(PredictorConfig(predictor.host))

    answer, _ = asyncio.run(Transformer("t")({"instances": [1]}, {}))  # type: ignore[misc]

    assert answer == {"predictions": [1], "by": "t"}
    assert predictor.requests[0][3] == b'{"instances":[2]}'


def test_explainer_is_called(predictor: Predictor) -> None:
    model = Model("m")
    model.explainer_host = predictor.host

    asyncio.run(model({"instances": [1]}, {"x-request-id": "7"}, InferenceVerb.EXPLAIN))

    ((_, path, sent, body),) = predictor.requests
    assert (path, sent["x-request-id"], body) == ("/v1/models/m:explain", "7", b'{"instances":[1]}')


@pytest.mark.parametrize("method", ["predict", "explain"])
def test_missing_host_is_not_implemented(method: str) -> None:
    with pytest.raises(NotImplementedError, match="Could not find"):
        asyncio.run(getattr(Model("m"), method)({}))


@pytest.mark.parametrize(
    ("status", "kind", "body", "message"),
    [
        (400, "application/json", b'{"error":"because"}', "because, '400 Bad Request' for url 'http://"),
        (404, "application/json; charset=utf-8", b'{"error":"none"}', "none, '404 Not Found'"),
        (503, "text/plain", b"busy", ", '503 Service Unavailable'"),
        (500, "application/json", b"{", ", '500 Internal Server Error'"),
    ],
)
def test_status_of_predictor_is_kept(predictor: Predictor, status: int, kind: str, body: bytes, message: str) -> None:
    predictor.answer = lambda path: (status, kind, body)
    context.set_predictor_config(PredictorConfig(predictor.host, predictor_request_retries=3))

    with pytest.raises(HTTPStatusError) as caught:
        predict({"instances": []})

    assert status_and_message(caught.value)[0] == status
    assert message in status_and_message(caught.value)[1]
    assert len(predictor.requests) == 1  # what was sent is never sent again


@pytest.mark.parametrize(
    ("protocol", "body"),
    [("v1", b"{"), ("v1", b""), ("v2", b"{}"), ("v2", b"[]"), ("v2", b'{"outputs":[{}]}'), ("v2", b"[" * 100000)],
)
def test_wrong_answer_is_no_fault_of_client(predictor: Predictor, protocol: str, body: bytes) -> None:
    predictor.answer = lambda path: (200, "application/json", body)
    context.set_predictor_config(PredictorConfig(predictor.host, protocol))

    with pytest.raises(errors.InferenceError, match="answered with"):
        predict({"instances": []})


def test_redirect_is_bad_gateway(predictor: Predictor) -> None:
    predictor.answer = lambda path: (302, "text/plain", b"")
    context.set_predictor_config(PredictorConfig(predictor.host))

    with pytest.raises(HTTPStatusError) as caught:
        predict({"instances": []})

    assert status_and_message(caught.value)[0] == 502


def test_unreachable_predictor_is_unavailable() -> None:
    context.set_predictor_config(PredictorConfig(f"127.0.0.1:{refusing_port()}"))

    with pytest.raises(Unreachable) as caught:
        predict({"instances": []})

    assert status_and_message(caught.value)[0] == 503


def test_connections_are_reused_and_bounded(predictor: Predictor) -> None:
    pool = HttpPool(connections=3)

    async def many() -> None:
        url = f"http://{predictor.host}/x"
        await asyncio.gather(*(pool.request("POST", url, {}, b"{}", 60) for _ in range(50)))

    asyncio.run(many())
    pool.close()

    assert len(predictor.requests) == 50
    assert 1 <= predictor.connections <= 3


def test_connection_that_server_closed_is_replaced(predictor: Predictor) -> None:
    pool = HttpPool()
    url = f"http://{predictor.host}/x"
    asyncio.run(pool.request("GET", url, {}, None, 60))
    (connection,) = next(iter(pool._idle.values()))
    connection.sock.shutdown(socket.SHUT_RDWR)

    response = asyncio.run(pool.request("GET", url, {}, None, 60))
    pool.close()

    assert response.status_code == 200
    assert predictor.connections == 2


def test_timeout_ends_request(predictor: Predictor) -> None:
    predictor.proceed.clear()
    context.set_predictor_config(PredictorConfig(predictor.host, predictor_request_timeout_seconds=1))

    with pytest.raises(TimeoutError, match="did not answer within 1") as caught:
        predict({"instances": []})

    assert status_and_message(caught.value)[0] == 504


def test_cancelled_call_closes_its_connection(predictor: Predictor) -> None:
    predictor.proceed.clear()
    pool = HttpPool(connections=1)
    url = f"http://{predictor.host}/x"

    async def leave() -> None:
        task = asyncio.ensure_future(pool.request("GET", url, {}, None, None))
        await asyncio.get_running_loop().run_in_executor(None, predictor.arrived.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The only thread is free again, although the server has not answered.
        predictor.proceed.set()
        await pool.request("GET", url, {}, None, 60)

    asyncio.run(leave())
    pool.close()

    assert predictor.connections == 2


def refusing_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_unreachable_predictor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: List[float] = []
    monkeypatch.setattr("mlserver._http.time.sleep", pauses.append)
    context.set_predictor_config(PredictorConfig(f"127.0.0.1:{refusing_port()}", predictor_request_retries=2))

    with pytest.raises(Unreachable, match="in 3 attempts"):
        predict({"instances": []})

    assert pauses == [0.1, 0.2]


def test_retries_end_with_time() -> None:
    context.set_predictor_config(PredictorConfig(f"127.0.0.1:{refusing_port()}", "v1", False, 1, 10**9))
    start = time.monotonic()

    with pytest.raises((Unreachable, TimeoutError)):
        predict({"instances": []})

    assert time.monotonic() - start < 30


def certificate_in(folder: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    """Creates a private key, and a certificate of 127.0.0.1 for it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    done = subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(certificate)], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return key, certificate


@pytest.fixture
def tls(tmp_path: pathlib.Path) -> Iterator[Tuple[Predictor, str]]:
    key, certificate = certificate_in(tmp_path)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    server = Predictor(server_context)
    yield server, str(certificate)
    server.close()


def test_tls_verifies_certificates(tls: Tuple[Predictor, str]) -> None:
    server, certificate = tls

    async def infer(verify: Any) -> Any:
        async with InferenceRESTClient(RESTConfig(verify=verify, retries=0)) as client:
            return await client.infer(f"https://{server.host}", {"instances": []}, "m")

    assert asyncio.run(infer(certificate)) == {"predictions": [1]}
    assert asyncio.run(infer(False)) == {"predictions": [1]}
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(infer(True))


def test_predictor_use_ssl(tls: Tuple[Predictor, str], monkeypatch: pytest.MonkeyPatch) -> None:
    server, certificate = tls
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    context.set_predictor_config(PredictorConfig(server.host, predictor_use_ssl=True))

    assert predict({"instances": []}) == {"predictions": [1]}


class GrpcPredictor:
    """A gRPC server that records metadata, and answers when it is told to."""

    def __init__(self, credentials: Any = None) -> None:
        import grpc
        from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

        owner = self
        self.metadata: Dict[str, str] = {}
        self.proceed, self.arrived, self.cancelled = threading.Event(), threading.Event(), threading.Event()

        class Servicer(dataplane_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
            def ServerLive(self, request: Any, call: Any) -> Any:  # noqa: N802
                return dataplane_pb2.ServerLiveResponse(live=True)

            def ModelInfer(self, request: Any, call: Any) -> Any:  # noqa: N802
                owner.metadata = dict(call.invocation_metadata())
                call.add_callback(owner.cancelled.set)
                owner.arrived.set()
                owner.proceed.wait(60)
                return dataplane_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)

        self.threads = concurrent.futures.ThreadPoolExecutor(2)
        self.server = grpc.server(self.threads)
        dataplane_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(), self.server)
        address = "127.0.0.1:0"
        add = self.server.add_insecure_port
        port = add(address) if credentials is None else self.server.add_secure_port(address, credentials)
        self.host = f"127.0.0.1:{port}"
        self.server.start()

    def close(self) -> None:
        self.proceed.set()
        self.server.stop(None).wait(60)
        # The server does not end them.
        self.threads.shutdown()


def test_transformer_counts_the_requests_that_led_to_its_own(predictor: Predictor) -> None:
    context.set_predictor_config(PredictorConfig(predictor.host))
    for given, sent in [({}, "1"), ({"Request-Depth": "14"}, "15"), ({"request-depth": "many"}, "1")]:
        predict({"instances": [1]}, given)
        assert predictor.requests[-1][2]["request-depth"] == sent
    asked = len(predictor.requests)
    for given in ["15", "16", "999999999"]:
        with pytest.raises(MLServerError, match="nested more than 16 levels deep") as raised:
            predict({"instances": [1]}, {"request-depth": given})
        assert raised.value.status_code == 508
    assert len(predictor.requests) == asked


@pytest.fixture
def grpc_predictor() -> Iterator[GrpcPredictor]:
    server = GrpcPredictor()
    yield server
    server.close()


@pytest.mark.needs("grpc")
def test_grpc_passes_headers_on(grpc_predictor: GrpcPredictor) -> None:
    context.set_predictor_config(PredictorConfig(grpc_predictor.host, "grpc-v2"))
    grpc_predictor.proceed.set()

    answer = predict(InferRequest("m", [], request_id="7"), {"Authorization": "a", "x-request-id": "9", "cookie": "c"})

    assert answer.id == "7"
    assert grpc_predictor.metadata["authorization"] == "a"
    assert grpc_predictor.metadata["x-request-id"] == "9"
    assert grpc_predictor.metadata["request-depth"] == "1"
    assert "cookie" not in grpc_predictor.metadata


@pytest.mark.needs("grpc")
def test_grpc_timeout_ends_request(grpc_predictor: GrpcPredictor) -> None:
    import grpc

    context.set_predictor_config(PredictorConfig(grpc_predictor.host, "grpc-v2", False, 1))

    with pytest.raises(grpc.RpcError) as caught:
        predict(InferRequest("m", []))

    assert status_and_message(caught.value)[0] == 504


@pytest.mark.needs("grpc")
def test_cancelled_grpc_call_ends_at_predictor(grpc_predictor: GrpcPredictor) -> None:
    context.set_predictor_config(PredictorConfig(grpc_predictor.host, "grpc-v2"))

    async def leave() -> None:
        task = asyncio.ensure_future(Model("m").predict(InferRequest("m", [])))
        await asyncio.get_running_loop().run_in_executor(None, grpc_predictor.arrived.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())

    assert grpc_predictor.cancelled.wait(60)


@pytest.mark.needs("grpc")
def test_grpc_over_tls(tmp_path: pathlib.Path) -> None:
    import grpc

    key, certificate = certificate_in(tmp_path)
    pair = (key.read_bytes(), certificate.read_bytes())
    server = GrpcPredictor(grpc.ssl_server_credentials([pair]))

    async def is_live(roots: Any) -> bool:
        arguments = {"use_ssl": True, "root_certificates": roots, "timeout": 60, "retries": 0}
        async with clients.InferenceGRPCClient(server.host, **arguments) as client:
            return await client.is_server_live()

    assert asyncio.run(is_live(str(certificate)))
    with pytest.raises(grpc.RpcError):
        asyncio.run(is_live(None))
    server.close()


@pytest.mark.parametrize(
    ("protocol", "call", "path"),
    [
        ("v1", lambda c, u: c.infer(u, {"instances": []}, "m"), "/v1/models/m:predict"),
        ("v1", lambda c, u: c.infer(u + "/base/", {"instances": []}, "m"), "/base/v1/models/m:predict"),
        ("v1", lambda c, u: c.infer(u, {"instances": []}, is_graph_endpoint=True), "/"),
        ("v1", lambda c, u: c.explain(u, "m", {"instances": []}), "/v1/models/m:explain"),
        ("v1", lambda c, u: c.is_server_live(u), "/"),
        ("v1", lambda c, u: c.is_model_ready(u, "m"), "/v1/models/m"),
        ("v2", lambda c, u: c.infer(u, {"inputs": []}, "m"), "/v2/models/m/infer"),
        ("v2", lambda c, u: c.is_server_live(u), "/v2/health/live"),
        ("v2", lambda c, u: c.is_server_ready(u), "/v2/health/ready"),
        ("v2", lambda c, u: c.is_model_ready(u, "m"), "/v2/models/m/ready"),
    ],
)
def test_rest_client_calls_path(predictor: Predictor, protocol: str, call: Any, path: str) -> None:
    body = V2_ANSWER[:-1] + b',"live":true,"ready":true,"status":"alive"}'
    predictor.answer = lambda path: (200, "application/json", body)

    async def run() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol=protocol)) as client:
            return await call(client, f"http://{predictor.host}")

    assert asyncio.run(run())
    assert [request[1] for request in predictor.requests] == [path]


def test_rest_client_rejects_what_protocol_lacks() -> None:
    v1, v2 = InferenceRESTClient(RESTConfig(protocol="v1")), InferenceRESTClient(RESTConfig(protocol="v2"))

    with pytest.raises(errors.UnsupportedProtocol):
        asyncio.run(v1.is_server_ready("http://x"))
    with pytest.raises(errors.UnsupportedProtocol):
        asyncio.run(v2.explain("http://x", "m", {}))
    with pytest.raises(ValueError, match="model_name"):
        asyncio.run(v1.infer("http://x", {}))
    with pytest.raises(ValueError, match="http2"):
        RESTConfig(http2=True)


ECHO = """
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Echo(MLModel):
    async def predict(self, request):
        outputs = [
            ResponseOutput(name=i.name, shape=i.shape, datatype=i.datatype, parameters=i.parameters, data=i.data)
            for i in request.inputs
        ]
        return InferenceResponse(model_name=self.name, id=request.id, outputs=outputs)
"""


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dict[str, str]]:
    """The addresses of our server, with a model that returns its inputs."""
    folder = tmp_path_factory.mktemp("server") / "models"
    folder.mkdir()
    (folder / "echo_model.py").write_text(ECHO)
    settings = {"name": "echo", "implementation": "echo_model.Echo"}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    with serving(folder):
        yield json.loads((folder.parent / "addresses.json").read_text())


@pytest.mark.parametrize(("ready", "status"), [(b"true", 200), (b"false", 200), (b"", 503)])
def test_transformer_waits_for_its_predictor(predictor: Predictor, ready: bytes, status: int) -> None:
    predictor.answer = lambda path: (status, "application/json", b'{"name":"m","ready":' + ready + b"}")
    model = Model("m")
    model.ready = True
    for check in (False, True):
        context.set_predictor_config(PredictorConfig(predictor.host, predictor_health_check=check))
        expected = not check or ready == b"true"

        assert asyncio.run(model._predictor_is_ready()) is expected

    assert [request[:2] for request in predictor.requests] == [("GET", "/v1/models/m")]


def test_unreachable_predictor_is_not_ready() -> None:
    context.set_predictor_config(PredictorConfig(f"127.0.0.1:{refusing_port()}", predictor_health_check=True))

    assert not asyncio.run(Model("m")._predictor_is_ready())


@needs_executable
@pytest.mark.needs("numpy")
@pytest.mark.parametrize("raw", [False, True])
def test_our_server_is_predictor_over_rest(echo: Dict[str, str], raw: bool) -> None:
    import numpy as np

    context.set_predictor_config(PredictorConfig(echo["http"], "v2"))
    values = np.array([[1.5, 2], [3, 4]], dtype=np.float32)
    tensor = InferInput("x", [2, 2], "FP32")
    tensor.set_data_from_numpy(values, binary_data=raw)
    outputs = [RequestedOutput("x", {"binary_data": raw})]

    answer = predict(InferRequest("echo", [tensor], request_id="7", request_outputs=outputs), name="echo")

    assert (answer.id, answer.model_name) == ("7", "echo")
    assert np.array_equal(answer.outputs[0].as_numpy(), values)
    assert answer.outputs[0].as_numpy().dtype == np.float32


@needs_executable
@pytest.mark.needs("numpy", "grpc")
@pytest.mark.parametrize("datatype", ["FP32", "FP16", "INT64", "BYTES"])
def test_our_server_is_predictor_over_grpc(echo: Dict[str, str], datatype: str) -> None:
    import numpy as np

    context.set_predictor_config(PredictorConfig(echo["grpc"], "grpc-v2"))
    kinds = {"FP32": np.float32, "FP16": np.float16, "INT64": np.int64}
    values = np.array([b"a", b"\xff"], object) if datatype == "BYTES" else np.array([1, 2], dtype=kinds[datatype])
    tensor = InferInput("x", [2], datatype)
    tensor.set_data_from_numpy(values)

    answer = predict(InferRequest("echo", [tensor], request_id="7"), {"x-request-id": "9"}, name="echo")

    assert isinstance(answer, InferResponse)
    assert answer.id == "7"
    assert answer.outputs[0].as_numpy().tolist() == values.tolist()


@needs_executable
def test_clients_ask_our_server_for_its_state(echo: Dict[str, str]) -> None:
    async def state() -> List[bool]:
        url = f"http://{echo['http']}"
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return [
                await client.is_server_live(url),
                await client.is_server_ready(url),
                await client.is_model_ready(url, "echo"),
                await client.is_model_ready(url, "nope"),
            ]

    assert asyncio.run(state()) == [True, True, True, False]


@needs_executable
def test_v1_clients_ask_our_server_for_its_state(echo: Dict[str, str]) -> None:
    async def state() -> List[bool]:
        url = f"http://{echo['http']}"
        async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
            return [await client.is_server_live(url), await client.is_model_ready(url, "echo")]

    assert asyncio.run(state()) == [True, True]


@needs_executable
@pytest.mark.needs("grpc")
def test_grpc_client_asks_our_server_for_its_state(echo: Dict[str, str]) -> None:
    async def state() -> List[bool]:
        async with clients.InferenceGRPCClient(echo["grpc"]) as client:
            return [
                await client.is_server_live(),
                await client.is_server_ready(),
                await client.is_model_ready("echo"),
                await client.is_model_ready("nope"),
            ]

    assert asyncio.run(state()) == [True, True, True, False]


@needs_executable
def test_unknown_model_of_predictor(echo: Dict[str, str]) -> None:
    context.set_predictor_config(PredictorConfig(echo["http"], "v2"))

    with pytest.raises(HTTPStatusError) as caught:
        predict(InferRequest("nope", [InferInput("x", [1], "INT8", [1])]), name="nope")

    assert caught.value.response.status_code == 404


@pytest.mark.needs("grpc")
def test_grpc_without_predictor_fails() -> None:
    import grpc

    context.set_predictor_config(PredictorConfig(f"127.0.0.1:{refusing_port()}", "grpc-v2", False, 30))

    with pytest.raises(grpc.RpcError) as caught:
        predict(InferRequest("m", [InferInput("x", [1], "INT8", [1])]))

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert status_and_message(caught.value)[0] == 503


def test_grpc_needs_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "grpc", None)
    context.set_predictor_config(PredictorConfig("x", "grpc-v2"))

    with pytest.raises(ImportError, match="install `grpcio`"):
        predict(InferRequest("m", []))


TRANSFORMER = """
from kserve import InferInput, InferRequest, Model

class Doubling(Model):
    def preprocess(self, payload, headers=None):
        tensor = payload.inputs[0]
        doubled = InferInput(tensor.name, tensor.shape, tensor.datatype, [2 * value for value in tensor.data])
        return InferRequest("echo", [doubled], request_id=payload.id)

    async def predict(self, payload, headers=None, response_headers=None):
        self.name, name = "echo", self.name  # the predictor's
        try:
            return await super().predict(payload, headers, response_headers)
        finally:
            self.name = name

    def postprocess(self, result, headers=None, response_headers=None):
        for output in result.outputs:
            output.data = [value + 1 for value in output.as_numpy().ravel().tolist()]
            output._raw_data = None
        return result
"""


@needs_executable
@pytest.mark.needs("numpy", "grpc")
@pytest.mark.parametrize("protocol", ["v2", "grpc-v2"])
def test_our_server_runs_transformer_of_our_server(echo: Dict[str, str], tmp_path: pathlib.Path, protocol: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "doubling.py").write_text(TRANSFORMER)
    extra = {"predictor_host": echo["http" if protocol == "v2" else "grpc"], "predictor_protocol": protocol}
    settings = {"name": "t", "implementation": "doubling.Doubling", "parameters": {"extra": extra}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    request = {"id": "7", "inputs": [{"name": "x", "shape": [2], "datatype": "FP64", "data": [1.5, 2]}]}

    with serving(folder) as server:
        url = f"http://{server}/v2/models/t/infer"
        sent = urllib.request.Request(url, json.dumps(request).encode(), {"content-type": "application/json"})
        with direct.open(sent, timeout=60) as response:
            answer = json.load(response)

    assert answer["id"] == "7"
    assert answer["outputs"][0]["data"] == [4, 5]
