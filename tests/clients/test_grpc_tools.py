"""The standard services besides inference, called with grpcio's own clients: health and reflection."""

from collections.abc import Iterator

import grpc
import pytest
from conftest import PATIENCE, Server, model, quickstart
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

INFERENCE = "inference.GRPCInferenceService"
REPOSITORY = "inference.model_repository.ModelRepositoryService"
HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def of(service: str) -> HealthCheckRequest:
    return HealthCheckRequest(service=service)


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    server = Server(model(quickstart(tmp_path), "echo")).wait_until_ready()
    yield server
    server.stop()


@pytest.fixture
def channel(server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


def test_health_check_knows_server_services_and_models(channel) -> None:
    health = HealthStub(channel)
    for service in ["", INFERENCE, REPOSITORY, "echo", "iris-xgboost"]:
        assert health.Check(of(service), timeout=PATIENCE).status == SERVING, service
    with pytest.raises(grpc.RpcError, match="no model or service is named `nobody`") as failure:
        health.Check(of("nobody"), timeout=PATIENCE)
    assert failure.value.code() == grpc.StatusCode.NOT_FOUND


def test_health_watch_reports_load_unload_and_shutdown(server, channel) -> None:
    health = HealthStub(channel)
    whole = health.Watch(of(""), timeout=PATIENCE)
    echo = health.Watch(of("echo"), timeout=PATIENCE)
    assert next(whole).status == next(echo).status == SERVING
    assert server.post("/v2/repository/models/echo/unload", {}).status == 200
    assert next(echo).status == HealthCheckResponse.SERVICE_UNKNOWN
    assert server.post("/v2/repository/models/echo/load", {}).status == 200
    # The loading state is too short to be seen reliably.
    assert next(answer.status for answer in echo if answer.status != NOT_SERVING) == SERVING
    server.process.terminate()
    for watch in (whole, echo):
        assert next(watch).status == NOT_SERVING
        with pytest.raises(grpc.RpcError) as end:
            next(watch)
        assert end.value.code() == grpc.StatusCode.UNAVAILABLE
    assert server.process.wait(PATIENCE) == 0


def test_reflection_client_calls_every_method(channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {INFERENCE, REPOSITORY, HEALTH} <= set(database.get_services())
    pool = DescriptorPool(database)
    service = pool.FindServiceByName(INFERENCE)
    assert {method.name for method in service.methods} >= {"ModelInfer", "ModelStreamInfer", "RepositoryIndex"}
    method = service.methods_by_name["ModelMetadata"]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    ask = channel.unary_unary(f"/{INFERENCE}/ModelMetadata", request.SerializeToString, response.FromString)
    answer = ask(request(name="iris-xgboost"), timeout=PATIENCE)
    assert (answer.name, answer.inputs[0].name) == ("iris-xgboost", "input-0")
    with pytest.raises(grpc.RpcError, match=r"symbol 'inference\.Nothing' not found"):
        pool.FindServiceByName("inference.Nothing")
