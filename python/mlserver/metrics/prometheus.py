"""Metrics that user code keeps in the default registry of the Prometheus client, or in `mlserver.metrics.REGISTRY`."""

import sys
import traceback
from typing import Any, Dict, Iterator, List

from .._legacy import missing_names
from .registry import REGISTRY

__getattr__ = missing_names(__name__)

# Metrics that the client collects about its own process.
_OWN_COLLECTORS = frozenset(("GCCollector", "PlatformCollector", "ProcessCollector"))

#: The types of the Prometheus text format for types that only OpenMetrics has, and the suffixes of their names.
_CLASSIC = {
    "counter": ("counter", "_total"),
    "info": ("gauge", "_info"),
    "stateset": ("gauge", ""),
    "gaugehistogram": ("histogram", ""),
    "unknown": ("untyped", ""),
}

#: How the values of a gauge in several processes are merged, by its `multiprocess_mode`. Other gauges are not merged.
_MERGES = {"sum": "sum", "livesum": "sum", "max": "max", "livemax": "max", "min": "min", "livemin": "min"}


def families() -> List[Dict[str, Any]]:
    """Returns the user's metrics in the form of an `exposition` frame; empty if the client was never imported."""
    registry: Any = getattr(sys.modules.get("prometheus_client"), "REGISTRY", None)
    found: List[Dict[str, Any]] = []
    collectors = [*getattr(registry, "_collector_to_names", ()), *REGISTRY.client_collectors()]
    for collector in {id(collector): collector for collector in collectors}.values():
        if type(collector).__name__ in _OWN_COLLECTORS:
            continue
        try:
            found += _families_of(collector)
        except Exception:
            # A failing collector must not hide the metrics of others.
            traceback.print_exc()
    return found


def _families_of(collector: Any) -> Iterator[Dict[str, Any]]:
    mode = getattr(collector, "_multiprocess_mode", None)
    for metric in collector.collect():
        kind, suffix = _CLASSIC.get(metric.type, (metric.type, ""))
        merge = _MERGES.get(str(mode), "each") if kind in ("gauge", "untyped") else "sum"
        samples = [
            # As text, because JSON has no infinity.
            (sample.name, [(str(label), str(value)) for label, value in sample.labels.items()], repr(float(sample.value)))
            for sample in metric.samples
            # Creation times are meaningless once processes are merged.
            if not sample.name.endswith("_created")
        ]
        name = metric.name if metric.name.endswith(suffix) else metric.name + suffix
        yield {"name": name, "help": metric.documentation, "kind": kind, "merge": merge, "samples": samples}
