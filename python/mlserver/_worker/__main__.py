"""Starts a worker; see the package."""

import sys
from pathlib import Path

if not __package__:
    # Started as a file: replaces the file's folder, which has no top-level modules, by that of the SDK.
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from mlserver._worker.process import main

if __name__ == "__main__":
    sys.exit(main())
