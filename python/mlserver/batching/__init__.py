"""Batching, which the server does; only its errors are here."""
