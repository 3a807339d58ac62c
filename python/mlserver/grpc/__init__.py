"""gRPC for clients: the generated classes of the protocol, and converters between them and `mlserver.types`.

Requires `protobuf`, and `grpcio` for the stubs. Neither is needed to serve a model.
"""
