"""Kafka, which the server speaks; only its errors are here."""
