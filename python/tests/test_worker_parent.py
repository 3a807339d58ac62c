"""The end of a worker's parent, where no kernel kills the worker."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}

_WORKER = """
import os, sys
sys.platform = "darwin"
from mlserver._worker import process
process._die_with_parent(os.getppid())
print(os.getpid(), flush=True)
while True:
    sum(range(1000))
"""

_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_worker_ends_with_its_parent_without_the_kernel() -> None:
    command = [sys.executable, "-c", _PARENT, _WORKER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        try:
            # The worker has the other end of the pipe, and computes without end.
            assert parent.wait(20) == -signal.SIGKILL
            assert _ends(parent)
        finally:
            _kill(worker)


def test_worker_without_its_parent_ends_at_once() -> None:
    code = "import sys; sys.platform = 'darwin'; from mlserver._worker import process; process._die_with_parent(-1)"
    run = subprocess.run([sys.executable, "-c", f"{code}; print('runs')"], capture_output=True, text=True, env=_ENVIRONMENT)
    assert (run.returncode, run.stdout) == (1, "")


def _ends(parent: "subprocess.Popen[str]") -> bool:
    """Waits until no process has the other end of the pipe."""
    assert parent.stdout is not None
    signal.alarm(20)
    try:
        return parent.stdout.read() == ""
    finally:
        signal.alarm(0)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
