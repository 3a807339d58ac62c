"""Writes `cases.jsonl.gz`: models of one operator of tables each, and what onnxruntime answers.

    python3.11 -m venv VENV
    VENV/bin/pip install -r tests/goldens/onnx_operators/requirements.txt
    VENV/bin/python tests/goldens/onnx_operators/generate.py

Models that onnxruntime refuses are left out, and printed.
"""

from pathlib import Path

import feature_cases
import model_cases
import tree_cases
from casefile import Cases


def main():
    """Writes the file."""
    cases = Cases()
    for group in (tree_cases, model_cases, feature_cases):
        group.add_cases(cases)
    size = cases.write(Path(__file__).parent / "cases.jsonl.gz")
    for line in cases.refused:
        print(f"left out: {line}")
    print(f"{len(cases.lines)} cases, {len(cases.refused)} left out, {size} bytes")


if __name__ == "__main__":
    main()
