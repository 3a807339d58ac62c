"""The application that `mlserver infer --engine spark` submits."""

import argparse
import sys
from typing import Any, List

import mlserver.spark
from mlserver._scoring.jobs import SOURCE_COLUMN, JobCounts, kept_columns, run
from mlserver._scoring.options import ERROR_COLUMN
from mlserver._scoring.shipping import snapshot
from mlserver.errors import InferenceError, ScoringError


def score(options: argparse.Namespace) -> JobCounts:
    """Scores the input, and writes the output. Raises the errors of `mlserver.spark.score`, and `ScoringError`."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col

    spark = SparkSession.builder.appName("mlserver infer").getOrCreate()
    exists = _exists(spark, options.output)
    if exists and not (options.overwrite or options.resume):
        raise ScoringError(
            f"the output `{options.output}` exists: choose another one, replace it with --overwrite, or add what it lacks with"
            " --resume"
        )
    frame = _read(spark, options)
    names: List[str] = list(frame.columns)
    kept = kept_columns(options, names)
    # A model without names of features gets all columns, but not the one that is added below.
    columns = options.columns
    location = snapshot(options.model, None)
    if not columns:
        with mlserver.load(location, version=options.model_version, idle=mlserver.spark.IDLE) as scorer:
            columns = scorer.chosen_columns(names)
    if options.format != "catalog":
        if SOURCE_COLUMN in names:
            raise InferenceError(f"the input has a column `{SOURCE_COLUMN}`, which the output has for its files: rename it")
        frame = frame.select("*", col("_metadata.file_path").alias(SOURCE_COLUMN))
        kept.append(SOURCE_COLUMN)
    before = JobCounts()
    if exists and options.resume:
        written = spark.read.parquet(options.output)
        if SOURCE_COLUMN not in written.columns or ERROR_COLUMN not in written.columns:
            raise ScoringError(
                f"the output `{options.output}` was not written by `mlserver infer --engine`, since it lacks the columns"
                f" `{SOURCE_COLUMN}` and `{ERROR_COLUMN}`: choose another one"
            )
        done = [row[0] for row in written.select(SOURCE_COLUMN).distinct().collect()]
        before.rows = before.resumed = written.count()
        before.failed = written.where(col(ERROR_COLUMN).isNotNull()).count()
        if done:
            frame = frame.where(~col(SOURCE_COLUMN).isin(done))
        if not frame.head(1):
            return before
    scored = mlserver.spark.score(
        frame,
        location,
        columns=columns,
        outputs=options.outputs or None,
        keep=kept,
        errors="column",
        version=options.model_version,
        ship=True,
    )
    if exists and options.resume:
        _check_columns(options.output, written, scored)
    writer = scored.write.mode("overwrite" if options.overwrite else "append")
    if options.partition_by:
        writer = writer.partitionBy(*options.partition_by)
    writer.parquet(options.output)
    counts = mlserver.spark.metrics(scored)
    return JobCounts(before.rows + counts.rows, before.failed + counts.failed, before.resumed, counts.seconds)


def _read(spark: Any, options: argparse.Namespace) -> Any:
    if options.format == "catalog":
        frames = [spark.table(name) for name in options.input]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other)
        return frame
    reader = spark.read
    if options.format in ("csv", "tsv"):
        separator = "," if options.format == "csv" else "\t"
        return reader.csv(options.input, header=True, inferSchema=True, sep=separator)
    if options.format == "rows":
        return reader.json(options.input)
    return reader.format(options.format).load(options.input)


def _exists(spark: Any, output: str) -> bool:
    """Reports whether an output has been written. What a failed job leaves of its folder does not count."""
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(output)
    files = path.getFileSystem(configuration)
    if not files.exists(path):
        return False
    return any(not entry.getPath().getName().startswith("_temporary") for entry in files.listStatus(path))


def _check_columns(output: str, written: Any, scored: Any) -> None:
    """Raises `ScoringError` if rows of two kinds would be in one output."""
    before = {field.name: field.dataType for field in written.schema.fields}
    now = {field.name: field.dataType for field in scored.schema.fields}
    if before == now:
        return
    different = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    raise ScoringError(
        f"--resume: the column `{different[0]}` of the output `{output}` is"
        f" {before[different[0]].simpleString() if different[0] in before else 'missing'}, and would be"
        f" {now[different[0]].simpleString() if different[0] in now else 'missing'}: use the same arguments as before"
    )


if __name__ == "__main__":
    sys.exit(run(score))
