"""gRPC for clients: the generated classes of the protocol, and converters between them and `mlserver.types`.

Requires `protobuf`, and `grpcio` for the stubs. Neither is needed to serve a model.
"""

from .._legacy import missing_names

__getattr__ = missing_names(__name__)
