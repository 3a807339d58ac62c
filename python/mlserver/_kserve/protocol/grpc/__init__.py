"""KServe's `kserve.protocol.grpc`."""
