"""Scores Parquet with Spark Connect: input, model and output are the arguments. A process has sessions of one kind only."""

import sys

import mlserver.spark
from mlserver.errors import ScoringError
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession


def session():
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {"spark.ui.enabled": "false", "spark.driver.memory": "700m"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(source, model, target):
    spark = session()
    scored = mlserver.spark.score(spark.read.parquet(source), model, keep=["id", "note.of"], errors="column")
    scored.write.parquet(target)
    try:
        mlserver.spark.metrics(scored)
    except ScoringError as error:
        print(error)
    spark.stop()


def vectors(source, model, target):
    """Scores the rows, whose features are a column of vectors."""
    spark = session()
    assembler = VectorAssembler(inputCols=["age", "income", "visits"], outputCol="features")
    wide = assembler.transform(spark.read.parquet(source))
    mlserver.spark.score(wide, model, columns=["features"], keep=["id"]).write.parquet(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
