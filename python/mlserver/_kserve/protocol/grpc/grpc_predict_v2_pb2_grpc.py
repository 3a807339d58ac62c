"""The stubs of the V2 protocol, which are those of `mlserver.grpc`."""

try:
    from ....grpc import dataplane_pb2_grpc as _stubs
except ImportError as error:
    raise ImportError(f"cannot use KServe's gRPC stubs: {error} (install `grpcio`)") from error

globals().update({name: value for name, value in vars(_stubs).items() if not name.startswith("_")})
