"""The worker process, in which models run: `python -m mlserver._worker`. Only the server starts it.

Standard input is a socket to the server. `docs/worker-protocol.md` describes the frames on it, `frames` encodes and decodes
them, `connection` moves them, `service` runs calls, `models` loads models, `streams` and `handlers` implement streams and
custom handlers, `output` forwards prints and log records, and `process` starts the worker and ends it with the server.

The worker needs only the standard library, and runs on CPython 3.8 and newer.
"""
