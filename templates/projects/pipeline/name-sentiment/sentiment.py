"""The meaning of the classifier's probabilities: plain functions, which can be tested and changed independently."""

from typing import List

#: The classes, in the order of the columns.
LABELS = ["negative", "neutral", "positive"]


def label(probabilities: List[float]) -> str:
    """Returns the most probable class."""
    return LABELS[probabilities.index(max(probabilities))]


def score(probabilities: List[float]) -> float:
    """Returns a score from -1 (negative) to 1 (positive)."""
    return probabilities[LABELS.index("positive")] - probabilities[LABELS.index("negative")]
