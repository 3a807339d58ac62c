"""KServe's `kserve.utils`."""
