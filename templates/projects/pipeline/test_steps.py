"""The steps, without a server."""

import unittest

import steps


class TestSteps(unittest.TestCase):
    """Each on its own."""

    def test_texts_become_words(self):
        self.assertEqual(steps.clean("Great, isn't it?"), ["great", "isn", "t", "it"])

    def test_words_are_counted(self):
        self.assertEqual(steps.features(["a", "good", "bad", "day"]), {"positive": 1, "negative": 1, "length": 4})

    def test_scores_have_names(self):
        self.assertEqual([steps.label(score) for score in (-0.1, 0.0, 1.0)], ["negative", "neutral", "positive"])
