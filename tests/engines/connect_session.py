"""Scores Parquet with Spark Connect: input, model and output are its arguments. A process has sessions of one kind only."""

import sys

import mlserver.spark
from mlserver.errors import ScoringError
from pyspark.sql import SparkSession


def main(source, model, target):
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {"spark.ui.enabled": "false", "spark.driver.memory": "700m"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    scored = mlserver.spark.score(spark.read.parquet(source), model, keep=["id", "note.of"], errors="column")
    scored.write.parquet(target)
    try:
        mlserver.spark.metrics(scored)
    except ScoringError as error:
        print(error)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
