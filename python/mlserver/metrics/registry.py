"""Histograms of user code, and the sink of their observations.

Inside a worker, the sink receives every observation immediately, and the server merges those of all workers; histograms keep
no values. Without a sink (tests, scripts) each histogram keeps count, sum and buckets itself.
"""

import threading
import time
from bisect import bisect_left
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .errors import MetricNotFound

#: Upper bounds of the buckets; not configurable.
BUCKETS: Tuple[float, ...] = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    float("inf"),
)

LABELS = ("model_name", "model_version")


class Observation(NamedTuple):
    """One value of one histogram."""

    name: str
    description: str
    labels: Dict[str, str]
    value: float


Sink = Callable[[Observation], None]

_sink: Optional[Sink] = None


def set_sink(sink: Optional[Sink]) -> None:
    """Sends all further observations to `sink`, which may be called from any thread. `None` removes the sink."""
    global _sink
    _sink = sink


class Child:
    """A histogram with values for its labels."""

    def __init__(self, histogram: "Histogram", labels: Dict[str, str]) -> None:
        self._histogram = histogram
        self._labels = labels
        self._lock = threading.Lock()
        #: Number of observations at or below each bound of `BUCKETS` but above the bound before it.
        self.buckets: List[int] = [0] * len(BUCKETS)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """The number of observations, if there is no sink."""
        return sum(self.buckets)

    def observe(self, amount: float, exemplar: Optional[Dict[str, str]] = None) -> None:
        """Adds a value. Exemplars are ignored."""
        try:
            value = float(amount)
        except (TypeError, ValueError):
            message = f"metric '{self._histogram.name}' observes numbers, not {amount!r:.50}"
            raise TypeError(message) from None
        sink = _sink
        if sink is not None:
            sink(Observation(self._histogram.name, self._histogram.description, self._labels, value))
            return
        with self._lock:
            self.sum += value
            self.buckets[min(bisect_left(BUCKETS, value), len(BUCKETS) - 1)] += 1

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observes the duration of the `with` block, in seconds."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.observe(max(time.perf_counter() - start, 0.0))


class Histogram:
    """A metric of user code, labeled with model and version."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self._children: Dict[Tuple[str, ...], Child] = {}
        self._lock = threading.Lock()

    def labels(self, *values: Any, **named: Any) -> Child:
        """Returns the histogram of one model and version, as two values or by name."""
        given = tuple(str(value) for value in values) if values else tuple(str(named.get(label)) for label in LABELS)
        if len(given) != len(LABELS) or (named and sorted(named) != sorted(LABELS)) or (values and named):
            raise ValueError(f"metric '{self.name}' has the labels {' and '.join(LABELS)}")
        with self._lock:
            child = self._children.get(given)
            if child is None:
                child = self._children[given] = Child(self, dict(zip(LABELS, given)))
            return child

    def observe(self, amount: float, exemplar: Optional[Dict[str, str]] = None) -> None:
        """Raises an exception, because a value needs labels."""
        raise ValueError("histogram metric is missing label values")

    def __repr__(self) -> str:
        return f"histogram:{self.name}"


class MetricsRegistry:
    """The histograms of user code by name."""

    def __init__(self) -> None:
        self._metrics: Dict[str, Histogram] = {}
        self._lock = threading.Lock()

    def exists(self, metric_name: str) -> bool:
        """Returns whether a metric of that name exists."""
        return metric_name in self._metrics

    def get(self, metric_name: str) -> Histogram:
        """Returns the metric of that name, or raises `MetricNotFound`."""
        try:
            return self._metrics[metric_name]
        except KeyError:
            raise MetricNotFound(metric_name) from None

    def get_or_add(self, metric_name: str, description: str) -> Histogram:
        """Returns the metric of that name, and creates it if needed."""
        with self._lock:
            metric = self._metrics.get(metric_name)
            if metric is None:
                metric = self._metrics[metric_name] = Histogram(metric_name, description)
            return metric

    __contains__ = exists
    __getitem__ = get

    def __iter__(self) -> Iterator[Histogram]:
        return iter(list(self._metrics.values()))


REGISTRY = MetricsRegistry()
