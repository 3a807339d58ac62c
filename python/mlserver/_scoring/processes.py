"""One child per process and set of arguments: started when it is first used, shared by threads, ended when it is idle."""

import atexit
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, Optional, Set

from .child import Child, ChildArguments

__all__ = ["close", "use"]

#: How many sets of arguments are kept after their children have ended.
_MOST_ENDED = 64


class _SharedChild:
    """The child of a set of arguments, if there is one, and who uses it."""

    def __init__(self, arguments: ChildArguments) -> None:
        self.arguments = arguments
        self.lock = threading.Lock()
        self.child: Optional[Child] = None
        #: The number of calls that use it, or wait for its start.
        self.active = 0
        #: When the last one ended, by `time.monotonic`.
        self.last_used = 0.0
        #: The scorers that use it and have not been closed.
        self.scorers: weakref.WeakSet[Any] = weakref.WeakSet()

    def seconds_left(self) -> Optional[float]:
        """Returns after how many seconds the child is to be ended, and `None` if nothing is known yet."""
        if self.child is None or self.active:
            return None
        return self.last_used + self.arguments.idle - time.monotonic()


class _ProcessState:
    """What a process has. A forked process gets another one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shared: Dict[ChildArguments, _SharedChild] = {}
        self.tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread: Optional[threading.Thread] = None
        #: The processes that may still run. An interrupt can come before a child has its process.
        self.processes: Set[subprocess.Popen[bytes]] = set()

    def spawn(self, command: Any, **options: Any) -> "subprocess.Popen[bytes]":
        """Starts a process on the spawning thread, which lives as long as this process.

        If the caller is interrupted meanwhile, the process is killed.
        """
        done = threading.Event()
        result: Dict[str, Any] = {}

        def start() -> None:
            try:
                process = result["process"] = subprocess.Popen(command, env=_environment(), **options)
                self.processes = {process, *(other for other in self.processes if other.poll() is None)}
            except BaseException as error:
                result["error"] = error
            done.set()

        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self._spawn_and_reap, name="mlserver-scoring", daemon=True)
                self.thread.start()
        try:
            self.tasks.put(start)
            done.wait()
        except BaseException:
            self.tasks.put(lambda: _kill(result.get("process")))
            raise
        if "error" in result:
            raise result["error"]
        return result["process"]  # type: ignore[no-any-return]

    def forget_ended(self) -> None:
        """Removes the sets of arguments whose children have ended, if there are many. The caller has the lock."""
        if len(self.shared) >= _MOST_ENDED:
            self.shared = {
                arguments: shared
                for arguments, shared in self.shared.items()
                if shared.child is not None or shared.active
            }

    def _spawn_and_reap(self) -> None:
        """Starts processes, and ends those that are idle."""
        while True:
            try:
                task = self.tasks.get(timeout=self._end_idle())
            except queue.Empty:
                continue
            task()

    def _end_idle(self) -> Optional[float]:
        """Ends idle children, and returns after how many seconds to look again."""
        with self.lock:
            children = list(self.shared.values())
        waits = []
        for shared in children:
            # A thread that has the lock starts the child, and may wait for this thread.
            if not shared.lock.acquire(blocking=False):
                waits.append(1.0)
                continue
            try:
                left = shared.seconds_left()
                if left is not None and left <= 0:
                    _end(shared)
                elif shared.child is not None:
                    waits.append(shared.arguments.idle if left is None else left)
            finally:
                shared.lock.release()
        # A call may begin and end while this thread waits. Then it looks too early, and once more.
        return max(min(waits), 0.05) if waits else None


_state = _ProcessState()


@contextlib.contextmanager
def use(arguments: ChildArguments, scorer: object) -> Iterator[Child]:
    """Yields a running child, which is not ended for idleness meanwhile.

    Raises `ScoringError` if it cannot be started. If it has died, another one is started.
    """
    state = _state
    with state.lock:
        shared = state.shared.get(arguments)
        if shared is None:
            state.forget_ended()
            shared = state.shared[arguments] = _SharedChild(arguments)
        shared.active += 1
    try:
        with shared.lock:
            if shared.child is None or not shared.child.is_usable:
                _end(shared)
                shared.child = Child(arguments, state.spawn)
                state.tasks.put(_nothing)  # so that the spawning thread learns when to look
            child = shared.child
            shared.scorers.add(scorer)
        yield child
    finally:
        # Not the lock of the child, which a thread that starts another one may have for long.
        with state.lock:
            shared.active -= 1
            shared.last_used = time.monotonic()


def close(arguments: ChildArguments, scorer: object) -> None:
    """Ends the child of a scorer, unless other scorers use it too."""
    with _state.lock:
        shared = _state.shared.get(arguments)
    if shared is None:
        return
    with shared.lock:
        shared.scorers.discard(scorer)
        if not shared.scorers:
            _end(shared)


def _end(shared: _SharedChild) -> None:
    child, shared.child = shared.child, None
    if child is not None:
        child.end()


def _environment() -> Dict[str, str]:
    """Returns the environment of children, in which models without an environment of their own run in this Python."""
    environment = dict(os.environ)
    environment.setdefault("MLSERVER_PYTHON_EXECUTABLE", sys.executable)
    return environment


def _kill(process: "Optional[subprocess.Popen[bytes]]") -> None:
    if process is not None:
        process.kill()
        process.wait()


def _nothing() -> None:
    pass


def _end_all() -> None:
    for shared in list(_state.shared.values()):
        # A thread that starts a child may have the lock. That child ends with this process.
        if shared.lock.acquire(timeout=1):
            try:
                _end(shared)
            finally:
                shared.lock.release()
    for process in _state.processes:
        _kill(process)


def _after_fork() -> None:
    """Forgets the children of the parent in a forked process, which has none of its threads."""
    global _state
    before, _state = _state, _ProcessState()
    for shared in before.shared.values():
        if shared.child is not None:
            shared.child.forget()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
