"""KServe's `kserve.protocol`."""
