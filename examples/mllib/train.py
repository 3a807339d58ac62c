"""Trains a model with Spark, and saves it with MLlib."""

import shutil

from pyspark import SparkConf, SparkContext
from pyspark.mllib.tree import LabeledPoint, RandomForest

configuration = SparkConf().setMaster("local[1]").set("spark.driver.host", "127.0.0.1").set("spark.ui.enabled", "false")
context = SparkContext(conf=configuration)
# Whether a person goes out, by temperature and rain.
days = [(1, [25.0, 0.0]), (1, [18.0, 0.0]), (1, [15.0, 1.0]), (0, [18.0, 9.0]), (0, [2.0, 0.0]), (0, [-4.0, 5.0])]
points = context.parallelize([LabeledPoint(label, features) for label, features in days], 1)
model = RandomForest.trainClassifier(points, 2, {}, numTrees=5, seed=3)
shutil.rmtree("model", ignore_errors=True)
model.save(context, "model")
context.stop()
print("wrote model")
