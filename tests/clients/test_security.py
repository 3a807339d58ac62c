"""grpcio and `tritonclient` over TLS and mutual TLS, with API keys."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gevent.ssl
import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from conftest import BINARY, Server, model
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException


class Secured(NamedTuple):
    """A server with TLS and keys, and the files and keys of its clients."""

    folder: Path
    http: str
    grpc: str
    mutual: bool
    headers: dict[str, str]
    readers: dict[str, str]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def channel(self, with_certificate: bool = True) -> grpc.Channel:
        names = ["client.key", "client.pem"] if with_certificate and self.mutual else []
        own = [(self.folder / name).read_bytes() for name in names]
        credentials = grpc.ssl_channel_credentials((self.folder / "ca.pem").read_bytes(), *own)
        return grpc.secure_channel(self.grpc, credentials)

    def triton(self) -> triton.InferenceServerClient:
        own = {"private_key": self.path("client.key"), "certificate_chain": self.path("client.pem")}
        own = own if self.mutual else {}
        return triton.InferenceServerClient(self.grpc, ssl=True, root_certificates=self.path("ca.pem"), **own)

    def triton_http(self) -> triton_http.InferenceServerClient:
        context = gevent.ssl.create_default_context(cafile=self.path("ca.pem"))
        if self.mutual:
            context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return triton_http.InferenceServerClient(self.http, ssl=True, ssl_context_factory=lambda: context)


def certificates(folder: Path) -> None:
    """Writes an authority (`ca.pem`), and certificates and keys of a server and a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    for name in ["server", "client"]:
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")


@pytest.fixture(scope="module", params=["tls", "mutual_tls"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = model(tmp_path_factory.mktemp("models"), "echo")
    certificates(folder)

    def create(name: str, scope: str) -> dict[str, str]:
        command = [BINARY, "keys", "create", "--name", name, "--scope", scope, "--file", "keys.json"]
        made = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        return {"authorization": f"Bearer {made.stdout.strip()}"}

    headers, readers = create("ci", "infer"), create("reader", "read")
    mutual = request.param == "mutual_tls"
    variables = {"MLSERVER_TLS_CLIENT_CA": "ca.pem"} if mutual else {}
    server = Server(
        folder,
        MLSERVER_TLS_CERTIFICATE="server.pem",
        MLSERVER_TLS_KEY="server.key",
        MLSERVER_API_KEYS_FILE="keys.json",
        **variables,
    )
    server.wait_for(lambda: "Loaded model 'echo'" in server.log.read_text())
    addresses = [f"localhost:{address.rpartition(':')[2]}" for address in (server.url, server.grpc)]
    yield Secured(folder, *addresses, mutual, headers, readers)
    server.stop()


def inputs(module: Any) -> list[Any]:
    given = module.InferInput("x", [2], "INT32")
    given.set_data_from_numpy(np.array([1, 2], np.int32))
    return [given]


def test_triton_predicts_over_grpc_with_a_key(secured: Secured) -> None:
    with secured.triton() as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("echo")
        found = client.infer("echo", inputs(triton), headers=dict(secured.headers))
        assert found.as_numpy("x").tolist() == [1, 2]
        for headers, status in [
            (None, "UNAUTHENTICATED"),
            ({"authorization": "Bearer mls_wrong"}, "UNAUTHENTICATED"),
            (secured.readers, "PERMISSION_DENIED"),
        ]:
            with pytest.raises(InferenceServerException) as error:
                client.infer("echo", inputs(triton), headers=headers)
            assert status in str(error.value.status())
        assert client.get_server_metadata(headers=dict(secured.readers)).name == "mlserver"


def test_triton_predicts_over_http_with_a_key(secured: Secured) -> None:
    with secured.triton_http() as client:
        assert client.is_server_live() and client.is_model_ready("echo")
        found = client.infer("echo", inputs(triton_http), headers=dict(secured.headers))
        assert found.as_numpy("x").tolist() == [1, 2]
        with pytest.raises(InferenceServerException, match="does not have the scope `infer`"):
            client.infer("echo", inputs(triton_http), headers=dict(secured.readers))
        assert client.get_server_metadata(headers=dict(secured.readers))["name"] == "mlserver"


def test_grpcio_streams_with_a_key(secured: Secured) -> None:
    with secured.channel() as channel:
        stub = GRPCInferenceServiceStub(channel)
        tensor = messages.ModelInferRequest.InferInputTensor(name="x", datatype="INT32", shape=[1])
        tensor.contents.int_contents.append(7)
        request = messages.ModelInferRequest(model_name="echo", inputs=[tensor])
        metadata = [("authorization", secured.headers["authorization"])]
        answer = next(iter(stub.ModelStreamInfer(iter([request]), metadata=metadata)))
        assert answer.ByteSize() > 0
        with pytest.raises(grpc.RpcError) as error:
            next(iter(stub.ModelStreamInfer(iter([request]))))
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_client_certificate_is_needed_for_mutual_tls_only(secured: Secured) -> None:
    with secured.channel(with_certificate=False) as channel:
        live = GRPCInferenceServiceStub(channel).ServerLive
        if not secured.mutual:
            assert live(messages.ServerLiveRequest(), timeout=30).live
            return
        with pytest.raises(grpc.RpcError) as error:
            live(messages.ServerLiveRequest(), timeout=30)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
