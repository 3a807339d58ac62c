"""Writes `networks.jsonl.gz` and `operators.jsonl.gz`: models, and what onnxruntime answers.

    python3.11 -m venv VENV
    VENV/bin/pip install -r tests/goldens/onnx_networks/requirements.txt
    VENV/bin/python tests/goldens/onnx_networks/generate.py

Models that onnxruntime refuses are left out, and printed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "onnx_operators"))

import network_cases  # noqa: E402
import operator_cases  # noqa: E402
from casefile import Cases  # noqa: E402


def main():
    """Writes the files."""
    for name, group in (("networks", network_cases), ("operators", operator_cases)):
        cases = Cases()
        group.add_cases(cases)
        size = cases.write(HERE / f"{name}.jsonl.gz")
        for line in cases.refused:
            print(f"left out: {line}")
        print(f"{name}: {len(cases.lines)} cases, {len(cases.refused)} left out, {size} bytes")


if __name__ == "__main__":
    main()
