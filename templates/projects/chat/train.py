"""Counts which word follows which in a text, and writes the counts to `weights.json`. Needs no packages."""

import json
from collections import Counter, defaultdict
from pathlib import Path

TEXT = """
ask the server and the server answers with a word . a word follows the last word until the answer ends .
the model counts words and the counts are the weights of the model .
"""


def main() -> None:
    followers = defaultdict(Counter)
    words = TEXT.split()
    for word, follower in zip(words, words[1:]):
        followers[word][follower] += 1
    # Those that are as frequent as each other stay in their order.
    weights = {word: [follower for follower, _ in counts.most_common(2)] for word, counts in followers.items()}
    (Path(__file__).parent / "weights.json").write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
