"""KServe's constants."""
