"""Tests that texts about the same things have similar vectors."""

import json
import unittest

from test_model import Server, read


class TestEmbeddings(unittest.TestCase):
    """Tests the answers to `embeddings.json`."""

    def test_fruits_are_nearer_to_each_other_than_to_cars(self):
        with Server() as server:
            answer = json.loads(server.post("/openai/v1/embeddings", read("embeddings.json")))
        apple, cherry, car = (item["embedding"] for item in answer["data"])

        def product(first, second):
            return sum(a * b for a, b in zip(first, second))

        self.assertGreater(product(apple, cherry), product(apple, car))
        self.assertAlmostEqual(product(apple, apple), 1.0, places=5)
