"""Tests the functions of the steps without a server."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE / "extract-features"), str(HERE / "name-sentiment")]

import features  # noqa: E402
import sentiment  # noqa: E402


class TestSteps(unittest.TestCase):
    """Tests each step by itself."""

    def test_clean_returns_words(self):
        self.assertEqual(features.clean("Great, isn't it?"), ["great", "isn", "t", "it"])

    def test_features_count_words(self):
        self.assertEqual(features.of(["a", "good", "bad", "day"]), [1.0, 1.0, 4.0])

    def test_label_is_the_most_probable_class(self):
        self.assertEqual(sentiment.label([0.1, 0.7, 0.2]), "neutral")
        self.assertEqual(sentiment.label([0.1, 0.2, 0.7]), "positive")

    def test_score_is_the_difference_of_probabilities(self):
        self.assertEqual(sentiment.score([0.5, 0.5, 0.0]), -0.5)
