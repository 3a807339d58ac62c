"""Tests that chats are answered, whole and word by word."""

import json
import unittest

from test_model import Server, read

PATH = "/openai/v1/chat/completions"


class TestChat(unittest.TestCase):
    """Tests the answers to `chat.json`."""

    def test_chat_is_the_same_whole_and_as_a_stream(self):
        request = read("chat.json")
        with Server() as server:
            whole = json.loads(server.post(PATH, request))
            stream = server.post(PATH, {**request, "stream": True})
        text = whole["choices"][0]["message"]["content"]
        self.assertEqual(text, read("answer.json")["outputs"][0]["data"][0])
        events = [event[len("data: ") :] for event in stream.split("\n\n") if event]
        self.assertEqual(events.pop(), "[DONE]")
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), text)
