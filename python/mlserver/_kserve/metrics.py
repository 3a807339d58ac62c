"""Names of KServe's metrics. The server measures models; this module has no registry of its own."""

from dataclasses import dataclass
from typing import Dict, List

PROM_LABELS: List[str] = ["model_name"]


@dataclass
class LLMStats:
    """The tokens that a language model has read and written for a request."""

    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0


def get_labels(model_name: str) -> Dict[str, str]:
    """Returns the labels of a model's metrics."""
    return {PROM_LABELS[0]: model_name}
