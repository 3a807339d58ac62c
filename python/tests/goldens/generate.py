"""Asks MLServer 1.7.1 all cases, and writes `answers.json`.

python3.11 -m venv original
original/bin/pip install mlserver==1.7.1 numpy==2.4.6 "pandas<3" uvloop==0.21.0
original/bin/python python/tests/goldens/generate.py
"""

import json
import logging
import pathlib
import warnings

import mlserver
from cases import CASES, run

HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    assert mlserver.__version__ == "1.7.1", f"this is mlserver {mlserver.__version__}"
    warnings.simplefilter("ignore")
    logging.disable()
    answers = {name: run(function) for name, (function, _) in CASES.items()}
    lines = [f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    (HERE / "answers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(answers)} answers")


if __name__ == "__main__":
    main()
