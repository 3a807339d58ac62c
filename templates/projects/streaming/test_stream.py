"""The words come one after the other."""

import json
import unittest

from test_model import Server, model_path, read


class TestStream(unittest.TestCase):
    """Server-sent events, an answer in each."""

    def test_every_word_is_an_event(self):
        with Server() as server:
            text = server.post(model_path() + "/infer_stream", read("request.json"))
        events = [json.loads(event.partition("data: ")[2]) for event in text.split("\n\n") if event]
        words = [event["outputs"][0]["data"][0] for event in events]
        self.assertEqual(words, ["three", "two", "one"])
