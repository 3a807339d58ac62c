"""KServe's `kserve.protocol.rest`."""
