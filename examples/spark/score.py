"""Adds the predictions of a model to a table in Spark, and uses the model in SQL.

    pip install mlserver pyspark pandas pyarrow
    python examples/spark/score.py
"""

import pathlib

import mlserver.spark
from pyspark.sql import SparkSession

MODEL = pathlib.Path(__file__).resolve().parents[1] / "quickstart" / "iris-xgboost"
FEATURES = ["sepal length", "sepal width", "petal length", "petal width"]
FLOWERS = [(1, 5.1, 3.5, 1.4, 0.2), (2, 6.7, 3.0, 5.2, 2.3), (3, 5.9, 3.0, None, 1.5)]

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
flowers = spark.createDataFrame(FLOWERS, ", ".join(["id int", *(f"`{name}` double" for name in FEATURES)]))

# A column for each output of the model. It has no names of features, so `columns` names them in their order.
scored = mlserver.spark.score(flowers, MODEL, columns=FEATURES, keep=["id"], errors="column")
for row in sorted(scored.collect(), key=lambda row: row.id):
    print(f"flower {row.id}: class {row.predict}, error {row.mlserver_error}")
print("rows and failed rows:", mlserver.spark.metrics(scored)[:2])

# A function of the features in their order, for expressions and SQL.
spark.udf.register("probabilities", mlserver.spark.udf(MODEL, output="predict_proba"))
flowers.createOrReplaceTempView("flowers")
columns = ", ".join(f"`{name}`" for name in FEATURES)
for row in spark.sql(f"SELECT id, probabilities({columns}) AS p FROM flowers WHERE id < 3 ORDER BY id").collect():
    print(f"flower {row.id}:", [round(probability, 3) for probability in row.p])
spark.stop()
