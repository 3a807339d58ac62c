"""What the jobs of `mlserver infer --engine` report."""

import json
import os
import pathlib
from typing import Any

import pytest
from mlserver._scoring import jobs
from mlserver.errors import InferenceError


def report(path: pathlib.Path, score: Any) -> Any:
    arguments = ["--model=m", "--input=in", "--format=parquet", "--output=out", "--keep=id", f"--report={path}"]
    code = jobs.run(score, arguments)
    return code, json.loads(path.read_text())


def test_report_has_counts_or_the_error(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    code, found = report(path, lambda options: jobs.JobCounts(rows=5, failed=1, prediction_seconds=0.5))
    assert (code, found["rows"], found["failed"], found["error"]) == (0, 5, 1, None)
    assert found["seconds"] >= 0
    assert found["prediction_seconds"] == 0.5

    def fail(error: Exception) -> Any:
        def score(options: Any) -> jobs.JobCounts:
            raise error

        return report(path, score)

    assert fail(InferenceError("the data lacks `age`"))[1]["error"] == "the data lacks `age`"
    code, found = fail(KeyError("age"))
    assert (code, found["error"]) == (1, "KeyError: 'age'")
    assert "Traceback" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["report.json"]


def test_report_without_file_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    jobs.run(lambda options: jobs.JobCounts(rows=2), ["--model=m", "--input=in", "--format=csv", "--output=out"])
    line = capsys.readouterr().out
    assert json.loads(line.partition("mlserver-report: ")[2])["rows"] == 2


def test_kept_columns_have_those_of_folders() -> None:
    options = jobs._parser().parse_args(
        ["--model=m", "--input=i", "--format=csv", "--output=o", "--keep=id", "--partition-by=day"]
    )
    assert jobs.kept_columns(options, ["id", "day", "x"]) == ["id", "day"]
    options.keep = []
    assert jobs.kept_columns(options, ["id", "day", "x"]) == ["id", "day", "x"]
