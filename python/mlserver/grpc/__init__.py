"""gRPC for clients: the protocol's generated classes, and converters between them and `mlserver.types`.

Needs `protobuf`, and `grpcio` for the stubs; neither is needed to serve a model.
"""
