"""The process in which models run: `python -m mlserver._worker`, started by the server and by nobody else.

The server's end of the socket is standard input. `docs/worker-protocol.md` describes the frames on it, `frames` reads and
writes them, `connection` moves them, `service` runs what they ask for, `models` loads models, `streams` and `handlers` are the
calls that are no plain predictions, `output` carries prints and logs, and `process` ties the process's life to the server's.

Everything here needs the standard library only, and runs on CPython 3.8 and newer.
"""
