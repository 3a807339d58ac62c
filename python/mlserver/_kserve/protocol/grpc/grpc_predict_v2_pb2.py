"""The messages of the V2 protocol, which are those of `mlserver.grpc`."""

try:
    from ....grpc import dataplane_pb2 as _messages
except ImportError as error:
    raise ImportError(f"cannot use KServe's gRPC messages: {error} (install `protobuf`)") from error

globals().update({name: value for name, value in vars(_messages).items() if not name.startswith("_")})
