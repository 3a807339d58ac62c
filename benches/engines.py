"""Compares `mlserver.spark.score` with MLflow's `spark_udf(env_manager="local")`: Parquet to Parquet, in one session.

    python3 -m venv target/bench-engines
    target/bench-engines/bin/pip install --requirement benches/engines-requirements.txt
    MLSERVER_BIN=target/dist/mlserver target/bench-engines/bin/python benches/engines.py --rows 1000000 --repeat 5

Prints a table in Markdown: the median of the rows per second on one core, the range of the runs, and the ratio. Both take
turns, and the first run of each is not counted. The models are XGBoost of 100 trees and a forest of scikit-learn.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

import joblib
import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost
from sklearn.ensemble import RandomForestClassifier

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = [f"x{place}" for place in range(20)]

sys.path.insert(0, str(ROOT / "python"))


def data(rows: int, seed: int) -> pd.DataFrame:
    """Returns 20 columns of FP64."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.normal(size=(rows, len(COLUMNS))), columns=COLUMNS)


def models(folder: pathlib.Path) -> Dict[str, Dict[str, str]]:
    """Trains each model once, and saves it for both sides."""
    train = data(5_000, 1)
    labels = (train["x0"] + train["x1"] * train["x2"] > 0).astype(int)
    forest = RandomForestClassifier(100, max_depth=8, random_state=0, n_jobs=1).fit(train, labels)
    trees = xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1).fit(train, labels)
    found = {}
    for name, model, implementation, file in [
        ("XGBoost, 100 trees", trees, "mlserver_xgboost.XGBoostModel", "model.json"),
        ("scikit-learn forest, 100 trees", forest, "mlserver_sklearn.SKLearnModel", "model.joblib"),
    ]:
        ours = folder / file.replace(".", "-")
        ours.mkdir()
        theirs = folder / f"mlflow-{ours.name}"
        if model is trees:
            model.save_model(ours / file)
            mlflow.xgboost.save_model(model, theirs)
        else:
            joblib.dump(model, ours / file)
            mlflow.sklearn.save_model(model, theirs)
        settings = {"name": ours.name, "implementation": implementation}
        (ours / "model-settings.json").write_text(json.dumps(settings))
        found[name] = {"ours": str(ours), "theirs": str(theirs)}
    return found


def session() -> Any:
    """Returns a session with one core."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.memory", "2g").getOrCreate()


def measure(sides: Dict[str, Callable[[], None]], repeat: int, rows: int) -> Dict[str, List[float]]:
    """Returns the rows per second of the runs of each side."""
    found: Dict[str, List[float]] = {name: [] for name in sides}
    for number in range(repeat + 1):
        for name, run in sides.items():
            begin = time.perf_counter()
            run()
            if number:
                found[name].append(rows / (time.perf_counter() - begin))
    return found


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    import mlserver.spark

    folder = pathlib.Path(tempfile.mkdtemp(prefix="engines-"))
    try:
        saved = models(folder)
        pq.write_table(pa.Table.from_pandas(data(options.rows, 2)), folder / "rows.parquet", row_group_size=100_000)
        spark = session()
        rows = spark.read.parquet(str(folder / "rows.parquet"))
        lines = []
        for name, paths in saved.items():
            # MLflow returns the labels of the model; so does `predict` here.
            theirs = mlflow.pyfunc.spark_udf(spark, paths["theirs"], result_type="long", env_manager="local")
            target = str(folder / "scores")

            def score(paths: Dict[str, str] = paths, target: str = target) -> None:
                scored = mlserver.spark.score(rows, paths["ours"], keep=[], outputs=["predict"])
                scored.write.mode("overwrite").parquet(target)

            def apply(function: Any = theirs, target: str = target) -> None:
                scored = rows.select(function(*COLUMNS).alias("predict"))
                scored.write.mode("overwrite").parquet(target)

            found = measure({"mlserver": score, "mlflow": apply}, options.repeat, options.rows)
            ours, other = (statistics.median(found[side]) for side in ("mlserver", "mlflow"))
            ranges = [f"{min(found[side]):,.0f} to {max(found[side]):,.0f}" for side in ("mlserver", "mlflow")]
            lines.append(f"| {name} | {ours:,.0f} ({ranges[0]}) | {other:,.0f} ({ranges[1]}) | {ours / other:.2f} |")
        print("| model | `mlserver.spark.score`, rows/s | MLflow `spark_udf`, `local`, rows/s | ratio |")
        print("|---|---|---|---|")
        print("\n".join(lines))
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
