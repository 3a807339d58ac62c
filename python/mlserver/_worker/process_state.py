"""What a child that user code forks must not inherit from the worker."""

import os
import signal
import threading
from contextlib import suppress
from typing import Any, Callable, List

_in_child: List[Callable[[], None]] = []
#: The signals that each thread blocked before it forked.
_masks = threading.local()

#: The signals that are meant for the server, which stops its workers itself.
SERVER_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def ignore_server_signals() -> None:
    """Ignores the signals that a terminal or supervisor sends to the server's process group.

    Uses a function instead of SIG_IGN, which the programs that user code starts would inherit.
    """
    for number in SERVER_SIGNALS:
        signal.signal(number, _ignore)
    # Blocked while a process forks: a signal that reaches the child before its handlers are restored would be lost.
    os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals)
    after_fork(_restore_signals)


def _ignore(_number: int, _frame: Any) -> None:
    pass


def after_fork(function: Callable[[], None]) -> None:
    """Calls a function in each forked child, before any other code, and before the functions that were given earlier."""
    if not _in_child:
        os.register_at_fork(after_in_child=_run_in_child)
    _in_child.insert(0, function)


def _run_in_child() -> None:
    for function in _in_child:
        function()


def _block_signals() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SERVER_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _restore_signals() -> None:
    for number in SERVER_SIGNALS:
        with suppress(ValueError, OSError):
            # A model may have set a handler, which the child inherits.
            if signal.getsignal(number) is _ignore:
                signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


__all__ = ["SERVER_SIGNALS", "after_fork", "ignore_server_signals"]
