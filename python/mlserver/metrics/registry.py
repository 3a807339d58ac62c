"""Histograms of user code, and the sink of their observations.

Inside a worker, the sink receives every observation immediately, and the server merges those of all workers. Each histogram
also keeps its own count, sum and buckets.

If `prometheus_client` is installed, the registry is one of its registries: it accepts the client's metrics, and its histograms
are collected like them.
"""

import sys
import threading
import time
from bisect import bisect_left
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .errors import MetricNotFound

_CLIENT = "prometheus_client"

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
        """The number of observations in this process."""
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


class _LikeClient:
    """An object that is an instance of a class of `prometheus_client`, too, once that is imported."""

    _client_class = ""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return getattr(sys.modules.get(_CLIENT), self._client_class, type(self))


class Histogram(_LikeClient):
    """A metric of user code, labeled with model and version."""

    _client_class = "Histogram"

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

    def describe(self) -> List[Any]:
        """Returns the metric without samples, as a metric of `prometheus_client`."""
        from prometheus_client.core import HistogramMetricFamily

        return [HistogramMetricFamily(self.name, self.description, labels=LABELS)]

    def collect(self) -> List[Any]:
        """Returns the metric with the samples of this process, as a metric of `prometheus_client`."""
        found = self.describe()
        with self._lock:
            children = list(self._children.items())
        for labels, child in children:
            counts = list(accumulate(child.buckets))
            bounds = [str(bound) if bound != BUCKETS[-1] else "+Inf" for bound in BUCKETS]
            found[0].add_metric(labels, list(zip(bounds, counts)), child.sum)
        return found

    def remove(self, *values: Any) -> None:
        """Removes the values of one model and version."""
        with self._lock:
            self._children.pop(tuple(str(value) for value in values), None)

    def clear(self) -> None:
        """Removes all values."""
        with self._lock:
            self._children.clear()

    def __repr__(self) -> str:
        return f"histogram:{self.name}"


class MetricsRegistry(_LikeClient):
    """The metrics of user code by name.

    It has all methods of `prometheus_client.CollectorRegistry` if `prometheus_client` is installed.
    """

    _client_class = "CollectorRegistry"

    def __init__(self, *_args: Any, **_options: Any) -> None:
        """Ignores the options of `prometheus_client.CollectorRegistry`."""
        self._metrics: Dict[str, Histogram] = {}
        self._lock = threading.Lock()
        self._client: Any = None

    def exists(self, metric_name: str) -> bool:
        """Returns whether a metric of that name exists."""
        return self._find(metric_name) is not None

    def get(self, metric_name: str) -> Any:
        """Returns the metric of that name, or raises `MetricNotFound`."""
        found = self._find(metric_name)
        if found is None:
            raise MetricNotFound(metric_name)
        if not hasattr(found, "labels"):
            raise MetricNotFound(metric_name, found)
        return found

    def get_or_add(self, metric_name: str, description: str) -> Any:
        """Returns the metric of that name, and creates a histogram if needed."""
        found = self._find(metric_name)
        if found is not None:
            return found
        with self._lock:
            metric = self._metrics.get(metric_name)
            if metric is None:
                metric = Histogram(metric_name, description)
                if self._client is not None:
                    self._client.register(metric)
                self._metrics[metric_name] = metric
            return metric

    def unregister(self, collector: Any) -> None:
        """Removes a metric."""
        self._client_registry().unregister(collector)
        for name, metric in list(self._metrics.items()):
            if metric is collector:
                del self._metrics[name]

    def client_collectors(self) -> List[Any]:
        """Returns the collectors of `prometheus_client` in this registry."""
        known = getattr(self._client, "_collector_to_names", ())
        return [collector for collector in list(known) if type(collector) is not Histogram]

    def _find(self, name: str) -> Any:
        found = self._metrics.get(name)
        return found if found is not None or self._client is None else self._client._names_to_collectors.get(name)

    def _client_registry(self) -> Any:
        """Returns the registry of `prometheus_client`, which has all metrics of this one."""
        from prometheus_client import CollectorRegistry

        with self._lock:
            if self._client is None:
                client = CollectorRegistry(auto_describe=True)
                for metric in self._metrics.values():
                    client.register(metric)
                self._client = client
        return self._client

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of `CollectorRegistry`, such as `register`, `collect` or `get_sample_value`."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            client = self._client_registry()
        except ImportError as error:
            raise AttributeError(f"`{name}` of the metrics registry needs `prometheus_client`: {error}") from error
        return getattr(client, name)

    __contains__ = exists
    __getitem__ = get

    def __iter__(self) -> Iterator[Any]:
        return iter([*self._metrics.values(), *self.client_collectors()])


REGISTRY = MetricsRegistry()
