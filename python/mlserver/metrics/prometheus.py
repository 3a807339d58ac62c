"""Metrics that user code keeps with the Prometheus client directly, in its default registry."""

import sys
import traceback
from typing import Any, Dict, Iterator, List

# What the client collects by itself about its own process.
_OWN_COLLECTORS = frozenset(("GCCollector", "PlatformCollector", "ProcessCollector"))

#: What the text format of Prometheus calls the kinds that only OpenMetrics knows, and what their names end with there.
_CLASSIC = {
    "counter": ("counter", "_total"),
    "info": ("gauge", "_info"),
    "stateset": ("gauge", ""),
    "gaugehistogram": ("histogram", ""),
    "unknown": ("untyped", ""),
}

#: How the processes' values of a gauge become one, by the gauge's `multiprocess_mode`; the others are told apart.
_MERGES = {"sum": "sum", "livesum": "sum", "max": "max", "livemax": "max", "min": "min", "livemin": "min"}


def families() -> List[Dict[str, Any]]:
    """Returns the user's metrics, as an `exposition` frame has them; none when the client was never imported."""
    registry: Any = getattr(sys.modules.get("prometheus_client"), "REGISTRY", None)
    found: List[Dict[str, Any]] = []
    for collector in list(getattr(registry, "_collector_to_names", ())):
        if type(collector).__name__ in _OWN_COLLECTORS:
            continue
        try:
            found += _families_of(collector)
        except Exception:
            # One collector of the user's hides no other's metrics.
            traceback.print_exc()
    return found


def _families_of(collector: Any) -> Iterator[Dict[str, Any]]:
    mode = getattr(collector, "_multiprocess_mode", None)
    for metric in collector.collect():
        kind, suffix = _CLASSIC.get(metric.type, (metric.type, ""))
        merge = _MERGES.get(str(mode), "each") if kind in ("gauge", "untyped") else "sum"
        samples = [
            # JSON has no infinity.
            (sample.name, [(str(label), str(value)) for label, value in sample.labels.items()], repr(float(sample.value)))
            for sample in metric.samples
            # When a process began to count says nothing about several of them.
            if not sample.name.endswith("_created")
        ]
        name = metric.name if metric.name.endswith(suffix) else metric.name + suffix
        yield {"name": name, "help": metric.documentation, "kind": kind, "merge": merge, "samples": samples}
