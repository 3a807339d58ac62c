"""The features of a text: plain functions, which can be tested and changed independently."""

from typing import List

POSITIVE = {"good", "great", "love", "excellent"}
NEGATIVE = {"bad", "awful", "hate", "poor"}
#: The features, in the order of the columns.
NAMES = ["positive", "negative", "length"]


def clean(text: str) -> List[str]:
    """Returns the words of a text in lower case, without punctuation."""
    kept = "".join(character if character.isalnum() else " " for character in text.lower())
    return kept.split()


def of(words: List[str]) -> List[float]:
    """Returns the features of the classifier."""
    return [
        float(sum(word in POSITIVE for word in words)),
        float(sum(word in NEGATIVE for word in words)),
        float(len(words)),
    ]
