"""Metrics that user code keeps with the Prometheus client directly, in its default registry."""

import sys
from typing import Any, Iterator, Optional

# What the client collects by itself about its own process.
_OWN_COLLECTORS = frozenset(("GCCollector", "PlatformCollector", "ProcessCollector"))


def exposition() -> Optional[bytes]:
    """Returns the user's metrics in Prometheus' text format, or `None` when the client was never imported."""
    client: Any = sys.modules.get("prometheus_client")
    if client is None:
        return None
    rendered: bytes = client.generate_latest(_UserMetrics(client.REGISTRY))
    return rendered


class _UserMetrics:
    """The default registry without what describes the process."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        collectors = list(getattr(self._registry, "_collector_to_names", ()))
        for collector in collectors:
            if type(collector).__name__ not in _OWN_COLLECTORS:
                yield from collector.collect()
