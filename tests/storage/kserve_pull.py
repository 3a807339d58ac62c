"""Fetches URIs with KServe's own package: a line `URI<tab>FOLDER` of standard input each, answered by `ok` or by the error."""

import logging
import sys
import tempfile

from kserve_storage import Storage

logging.disable(logging.CRITICAL)
for line in sys.stdin:
    uri, folder = line.rstrip("\n").split("\t")
    try:
        Storage.download(uri, folder)
        print("ok", flush=True)
    except BaseException as error:  # It also ends the process for some errors.
        print(repr(error).replace("\n", " "), flush=True)
    assert folder.startswith(tempfile.gettempdir())
