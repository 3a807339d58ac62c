"""The errors of Kafka. The server itself is the Kafka client."""

from .._legacy import missing_names

__getattr__ = missing_names(__name__)
