"""The metrics that user code observes, until they are sent."""

import math
import threading
from typing import TYPE_CHECKING, Any, List, Set

from ..logging import logger
from .frames import FrameError, FrameKind

if TYPE_CHECKING:
    from .connection import Connection

#: How many observations one frame has at most. Its head must not exceed the limit, which names of 3 KB would reach.
_MAX_PER_FRAME = 5_000

#: How many observations wait at most for the next final frame or scrape. More of them are sent at once.
_MAX_WAITING = 100_000

#: How long code that observes more waits for the server, in seconds.
_PATIENCE = 5.0


class Observations:
    """The observations that have not been sent. Safe to use from any thread."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        #: Those to send with the next final frame.
        self.waiting: List[Any] = []
        self._dropped = 0
        #: Whether the server did not read in time.
        self._is_stalled = False
        self._not_finite: Set[str] = set()
        self._lock = threading.Lock()

    def add(self, observation: Any) -> None:
        """Keeps an observation until the next `flush`."""
        if not math.isfinite(observation.value):
            # JSON has no such numbers, and one of them would make the sum of the histogram useless.
            if observation.name not in self._not_finite:
                self._not_finite.add(observation.name)
                logger.warning("Ignored a value of metric '%s' that is not finite.", observation.name)
        elif len(self.waiting) < _MAX_WAITING or self._make_room():
            labels = observation.labels
            self.waiting.append(
                (
                    observation.name,
                    observation.description,
                    labels["model_name"],
                    labels["model_version"],
                    observation.value,
                )
            )
        else:
            self._dropped += 1

    def _make_room(self) -> bool:
        """Sends what waits, unless the server does not even read what has been sent before."""
        self._is_stalled = not self._connection.drain(0 if self._is_stalled else _PATIENCE)
        if self._is_stalled:
            return False
        self.flush()
        self._connection.flush()
        return True

    def flush(self) -> None:
        """Sends all observations. They are removed even if they cannot be sent, so that later ones can be."""
        if not self.waiting:
            return
        with self._lock:
            # Other threads may add more at the same time; those are sent by the next flush.
            for _ in range(0, len(self.waiting), _MAX_PER_FRAME):
                observed = self.waiting[:_MAX_PER_FRAME]
                del self.waiting[: len(observed)]
                try:
                    self._connection.send(FrameKind.METRICS, 0, {"observed": observed})
                except FrameError:
                    self._dropped += len(observed)
            dropped, self._dropped = self._dropped, 0
        if dropped:
            logger.warning(
                "Dropped %d observations of metrics: the server did not read those before, and at most %d are kept.",
                dropped,
                _MAX_WAITING,
            )


__all__ = ["Observations"]
