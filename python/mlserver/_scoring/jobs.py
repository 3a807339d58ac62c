"""The jobs of `mlserver infer --engine`: their arguments, and what they report.

The executable reads the report from a file, or from a marked line of the log if the job runs on another machine.
"""

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Callable, List, Optional, Sequence

from ..errors import MLServerError

__all__ = ["SOURCE_COLUMN", "JobCounts", "kept_columns", "run"]

#: The column with the file that a row is from, by which `--resume` knows the files that have been scored.
SOURCE_COLUMN = "source_file"

#: What begins the line of the log that has the report.
_REPORT_LINE = "mlserver-report: "
#: The longest error in a report, in characters: messages of engines may have the stack of every task.
_MAX_ERROR = 4000


@dataclass
class JobCounts:
    """What a job did, and the runs before it whose output it continued."""

    rows: int = 0
    failed: int = 0
    #: The rows of earlier runs among them.
    resumed: int = 0
    #: How long predictions took in all tasks together.
    prediction_seconds: Optional[float] = None


def run(score: Callable[[argparse.Namespace], JobCounts], arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a job, reports what it did, and returns the exit code of its process."""
    options = _parser().parse_args(arguments)
    begin = time.monotonic()
    counts, error = JobCounts(), None
    try:
        counts = score(options)
    except Exception as raised:
        traceback.print_exc()
        known = isinstance(raised, (MLServerError, ValueError))
        error = str(raised) if known else f"{type(raised).__name__}: {raised}"
        error = error.strip()[:_MAX_ERROR]
    report = {**asdict(counts), "seconds": time.monotonic() - begin, "error": error}
    text = json.dumps(report)
    if options.report:
        # The reader does not see half of it.
        partial = f"{options.report}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(partial, options.report)
    else:
        sys.stdout.write(f"{_REPORT_LINE}{text}\n")
        sys.stdout.flush()
    return 0 if error is None else 1


def kept_columns(options: argparse.Namespace, names: Sequence[str]) -> List[str]:
    """Returns the columns that the output keeps: all, or the named ones, and those that name its folders."""
    kept = options.keep or names
    return list(dict.fromkeys([*kept, *options.partition_by]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A job of `mlserver infer --engine`.")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", help="folder, file or URI of the model")
    model.add_argument("--shipped-model", help="name of a model that has come with the job")
    parser.add_argument("--model-version")
    parser.add_argument("--input", action="append", required=True, help="a file, a folder or a table")
    parser.add_argument("--format", required=True, choices=["parquet", "csv", "tsv", "rows", "orc", "catalog"])
    parser.add_argument("--output", required=True, help="the folder of the result")
    for name in ("--outputs", "--columns", "--keep", "--partition-by"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--report", help="file for what the job did; standard output if it is missing")
    return parser
