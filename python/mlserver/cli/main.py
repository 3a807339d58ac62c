"""The entry point of the command `mlserver`."""

import subprocess
import sys

from .._legacy import missing_names
from ..server import find_executable

__all__ = ["main"]

__getattr__ = missing_names(__name__)


def main() -> None:
    """Runs the executable `mlserver` with the arguments of this process, and exits with its exit code."""
    process = subprocess.Popen([find_executable(), *sys.argv[1:]])
    while True:
        try:
            sys.exit(process.wait())
        except KeyboardInterrupt:
            continue  # the terminal has sent the signal to the executable, too
