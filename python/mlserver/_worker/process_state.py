"""What a child that user code forks must not inherit from the worker."""

import os
import signal
from contextlib import suppress
from typing import Callable, List

_in_child: List[Callable[[], None]] = []

#: The signals that are meant for the server, which stops its workers itself.
_SERVER_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def ignore_server_signals() -> None:
    """Ignores the signals that a terminal or supervisor sends to the server's process group.

    Uses a function instead of SIG_IGN, which the programs that user code starts would inherit.
    """
    for number in _SERVER_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    after_fork(_restore_signals)


def after_fork(function: Callable[[], None]) -> None:
    """Calls a function in each forked child, before any other code."""
    if not _in_child:
        os.register_at_fork(after_in_child=_run_in_child)
    _in_child.append(function)


def _run_in_child() -> None:
    for function in _in_child:
        function()


def _restore_signals() -> None:
    for number in _SERVER_SIGNALS:
        with suppress(ValueError, OSError):
            signal.signal(number, signal.SIG_DFL)


__all__ = ["after_fork", "ignore_server_signals"]
