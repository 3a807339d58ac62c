"""Makes a vector for each word of a text from the words beside it, and writes them to `weights.json`. Needs no packages."""

import json
import math
from pathlib import Path

TEXT = """
a red apple and a green apple grow on a tree . a red cherry and a green pear grow on a tree .
a fast car and a slow car drive on a road . a fast bus and a slow train drive on a road .
"""


def main() -> None:
    words = TEXT.split()
    names = sorted(set(words))
    vectors = {}
    for name in names:
        counts = dict.fromkeys(names, 0)
        for index, word in enumerate(words):
            if word == name:
                for neighbor in words[max(index - 2, 0) : index + 3]:
                    counts[neighbor] += 1
        length = math.sqrt(sum(count * count for count in counts.values()))
        vectors[name] = [round(counts[other] / length, 6) for other in names]
    (Path(__file__).parent / "weights.json").write_text(json.dumps(vectors) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
