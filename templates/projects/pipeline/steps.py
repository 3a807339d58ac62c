"""The steps of the pipeline: plain functions, which can be tested and changed independently."""

from typing import Dict, List

POSITIVE = {"good", "great", "love", "excellent"}
NEGATIVE = {"bad", "awful", "hate", "poor"}


def clean(text: str) -> List[str]:
    """Returns the words of a text in lower case, without punctuation."""
    kept = "".join(character if character.isalnum() else " " for character in text.lower())
    return kept.split()


def features(words: List[str]) -> Dict[str, int]:
    """Returns the features of the classifier."""
    return {
        "positive": sum(word in POSITIVE for word in words),
        "negative": sum(word in NEGATIVE for word in words),
        "length": len(words),
    }


def classify(counts: Dict[str, int]) -> float:
    """Returns a score from -1 (negative) to 1 (positive). Replace this by your model."""
    found = counts["positive"] + counts["negative"]
    return (counts["positive"] - counts["negative"]) / found if found else 0.0


def label(score: float) -> str:
    """Returns the label of a score."""
    if score == 0:
        return "neutral"
    return "positive" if score > 0 else "negative"
