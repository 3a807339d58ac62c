"""Tests the steps without a server."""

import unittest

import steps


class TestSteps(unittest.TestCase):
    """Tests each step by itself."""

    def test_clean_returns_words(self):
        self.assertEqual(steps.clean("Great, isn't it?"), ["great", "isn", "t", "it"])

    def test_features_counts_words(self):
        self.assertEqual(steps.features(["a", "good", "bad", "day"]), {"positive": 1, "negative": 1, "length": 4})

    def test_label_names_scores(self):
        self.assertEqual([steps.label(score) for score in (-0.1, 0.0, 1.0)], ["negative", "neutral", "positive"])
