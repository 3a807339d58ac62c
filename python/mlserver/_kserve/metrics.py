"""Names of KServe's metrics. The server measures models; this module has no registry of its own."""

from typing import Dict, List

PROM_LABELS: List[str] = ["model_name"]


def get_labels(model_name: str) -> Dict[str, str]:
    """Returns the labels of a model's metrics."""
    return {PROM_LABELS[0]: model_name}
