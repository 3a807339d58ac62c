"""Tests that the words are streamed."""

import json
import unittest

from test_model import Server, model_path, read


class TestStream(unittest.TestCase):
    """Tests the stream of server-sent events, each of which is a response."""

    def test_stream_sends_one_event_per_word(self):
        with Server() as server:
            text = server.post(model_path() + "/infer_stream", read("request.json"))
        events = [json.loads(event.partition("data: ")[2]) for event in text.split("\n\n") if event]
        words = [event["outputs"][0]["data"][0] for event in events]
        self.assertEqual(words, ["three", "two", "one"])
