"""Learns a byte-pair encoding and a language model from `corpus.txt`. Standard library only.

    python train.py

Token 0 ends a text, tokens 1 to 256 are bytes, and each further one is a pair of earlier ones within a word. The language
model predicts the token that most often follows the last three tokens in the corpus, or fewer of them if they are new.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Dict, List, Tuple

HERE = Path(__file__).resolve().parent
END = 0
FIRST_PAIR = 257
PAIRS = 160
#: Words with the space before them, and punctuation.
WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
#: The most tokens that a prediction depends on.
ORDER = 3


def merge(tokens: List[int], pair: Tuple[int, int], token: int) -> List[int]:
    """Replaces each occurrence of a pair by a token."""
    merged: List[int] = []
    for next_token in tokens:
        if merged and (merged[-1], next_token) == pair:
            merged[-1] = token
        else:
            merged.append(next_token)
    return merged


def learn_pairs(words: List[List[int]]) -> Tuple[List[Tuple[int, int]], List[List[int]]]:
    """Makes tokens of the most frequent pairs, one after the other."""
    pairs = []
    for token in range(FIRST_PAIR, FIRST_PAIR + PAIRS):
        counts = Counter(pair for word in words for pair in zip(word, word[1:]))
        # Of pairs that are equally frequent, the smallest one.
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        pairs.append(pair)
        words = [merge(word, pair, token) for word in words]
    return pairs, words


def learn_next(texts: List[List[int]]) -> Dict[str, int]:
    """Returns the most frequent token after each sequence of tokens, unless it is that after its end."""
    counts: Dict[Tuple[int, ...], Counter] = defaultdict(Counter)
    for text in texts:
        for end in range(len(text)):
            for length in range(min(ORDER, end) + 1):
                counts[tuple(text[end - length : end])][text[end]] += 1
    following = {}
    for context in sorted(counts, key=lambda context: (len(context), context)):
        frequent = counts[context]
        token = min(frequent, key=lambda token: (-frequent[token], token))
        shorter = next((following[context[i:]] for i in range(1, len(context) + 1) if context[i:] in following), None)
        if token != shorter:
            following[context] = token
    return {" ".join(map(str, context)): token for context, token in following.items()}


def main() -> None:
    lines = (HERE / "corpus.txt").read_text(encoding="utf-8").splitlines()
    split = [[[byte + 1 for byte in word.encode()] for word in WORD.findall(line)] for line in lines]
    pairs, words = learn_pairs([word for line in split for word in line])
    rest = iter(words)
    texts = [[token for _ in line for token in next(rest)] for line in split]
    following = learn_next([[*text, END] for text in texts])
    (HERE / "tokenizer" / "pairs.json").write_text(json.dumps(pairs) + "\n")
    model = {"order": ORDER, "next": following}
    (HERE / "language-model" / "model.json").write_text(json.dumps(model) + "\n")
    print(f"{len(pairs)} pairs, {sum(map(len, texts))} tokens, {len(following)} rules")


if __name__ == "__main__":
    main()
