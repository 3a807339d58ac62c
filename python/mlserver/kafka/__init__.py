"""The errors of Kafka. The server itself is the Kafka client."""
