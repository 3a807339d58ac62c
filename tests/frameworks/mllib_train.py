"""Trains a model of each of MLlib's formats, and writes what PySpark itself answers: `mllib_train.py FOLDER`."""

import json
import os
import pathlib
import sys

ROWS = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.25], [2.0, 1.0, 1.5], [3.0, 0.5, 2.0], [4.0, 1.5, 0.75], [5.0, 0.25, 3.0]]
ASKED = [[0.5, 1.0, 0.5], [3.5, 0.5, 2.0], [4.75, 1.0, 1.0]]


def main(folder: pathlib.Path) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.mllib import classification, clustering, regression, tree
    from pyspark.mllib.regression import LabeledPoint

    os.environ["PYSPARK_PYTHON"] = sys.executable
    configuration = SparkConf().setMaster("local[1]").set("spark.driver.host", "127.0.0.1")
    context = SparkContext(conf=configuration.set("spark.ui.enabled", "false"))
    labeled = context.parallelize([LabeledPoint(index // 3, row) for index, row in enumerate(ROWS)], 1)
    numbers = context.parallelize([LabeledPoint(row[0] + 2 * row[1], row) for row in ROWS], 1)
    trained = {
        "LogisticRegression": classification.LogisticRegressionWithLBFGS.train(labeled, iterations=10),
        "NaiveBayes": classification.NaiveBayes.train(labeled),
        "SVM": classification.SVMWithSGD.train(labeled, iterations=10),
        "KMeans": clustering.KMeans.train(context.parallelize(ROWS, 1), 2, seed=1),
        "IsotonicRegression": regression.IsotonicRegression.train(
            context.parallelize([(row[0] * 2, row[0], 1.0) for row in ROWS], 1)
        ),
        "LinearRegression": regression.LinearRegressionWithSGD.train(numbers, iterations=10, step=0.1),
        "Lasso": regression.LassoWithSGD.train(numbers, iterations=10, step=0.1),
        "RidgeRegression": regression.RidgeRegressionWithSGD.train(numbers, iterations=10, step=0.1),
        "DecisionTree": tree.DecisionTree.trainClassifier(labeled, 2, {}, maxDepth=2),
        "GradientBoostedTrees": tree.GradientBoostedTrees.trainRegressor(numbers, {}, numIterations=3),
        "RandomForest": tree.RandomForest.trainClassifier(labeled, 2, {}, numTrees=3, seed=1),
    }
    told = {}
    for name, model in trained.items():
        target = folder / name
        target.mkdir(parents=True)
        model.save(context, str(target / "model"))
        parameters = {"uri": "./model", "format": name}
        text = {"name": name, "implementation": "mlserver_mllib.MLlibModel", "parameters": parameters}
        (target / "model-settings.json").write_text(json.dumps(text))
        asked = [row[0] for row in ASKED] if name == "IsotonicRegression" else ASKED
        told[name] = [float(model.predict(row)) for row in asked]
    (folder / "told.json").write_text(json.dumps(told))
    context.stop()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
