"""Compares `mlserver.load` and `mlserver.spark.score` with the libraries and with MLflow's `spark_udf`, on one core.

    python3 -m venv target/bench-engines
    target/bench-engines/bin/pip install --requirement benches/engines-requirements.txt
    MLSERVER_BIN=target/dist/mlserver target/bench-engines/bin/python benches/engines.py --rows 1000000 --rounds 5

There are four phases, of which `--only load local` runs two:

- `load`: the first prediction of `mlserver.load`, calls with one row, and all rows, beside the library in this process.
- `transport`: the time of all rows for a model of a single split, which is that of the transport, beside that of 100 trees.
- `local`: `mlserver.spark.score` and MLflow's `spark_udf(env_manager="local")`, from Parquet to Parquet, in one session.
- `virtualenv`: the same with `env_manager="virtualenv"`. MLflow builds Python with pyenv, which must be installed, and installs
  the environment of the model, which is done again for each model; that is not timed, and takes many minutes.

The sides take turns, and the first run of each is not counted. The models are regressors, so that answers are numbers whose
bits are compared: if they differ, the program fails. Each result is printed as a line of JSON, and at the end there are tables
in Markdown, with the median of the rounds and their range.
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
from typing import Any, Callable, Dict, List, NamedTuple

import joblib
import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost
from sklearn.ensemble import RandomForestRegressor

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = [f"x{place}" for place in range(20)]
PHASES = ["load", "transport", "local", "virtualenv"]
#: How many calls with one row are a round.
CALLS = 300

# The package of this repository, for the workers of Spark, too.
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = str(ROOT / "python")
os.environ["PYSPARK_PYTHON"] = sys.executable
# MLflow looks for `virtualenv` there.
os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import mlserver
import mlserver.spark


class SavedModel(NamedTuple):
    """A model as each side takes it."""

    name: str
    ours: str
    mlflow: str
    #: Predicts with the library, in this process.
    library: Callable[[pd.DataFrame], Any]
    #: The type of the predictions in Spark.
    result_type: str


class Report:
    """Results: printed as they come, and as tables at the end."""

    def __init__(self) -> None:
        self._found: Dict[str, Dict[str, Dict[str, List[float]]]] = {}

    def add(self, phase: str, model: str, side: str, round_number: int, value: float, unit: str) -> None:
        """Prints a result."""
        line = {"phase": phase, "model": model, "side": side, "round": round_number, "value": value, "unit": unit}
        print(json.dumps(line, ensure_ascii=False), flush=True)
        rows = self._found.setdefault(phase, {}).setdefault(model, {})
        rows.setdefault(f"{side}, {unit}", []).append(value)

    def tables(self) -> str:
        """Returns the tables of the phases that ran."""
        lines = []
        for phase, models in self._found.items():
            lines += [f"\n{phase}\n", "| model | | median | range |", "|---|---|---|---|"]
            for model, sides in models.items():
                for side, values in sides.items():
                    extent = f"{number(min(values))} to {number(max(values))}"
                    lines.append(f"| {model} | {side} | {number(statistics.median(values))} | {extent} |")
        return "\n".join(lines)


def number(value: float) -> str:
    """Formats a value of a table."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def data(rows: int, seed: int) -> pd.DataFrame:
    """Returns 20 columns of FP64."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.normal(size=(rows, len(COLUMNS))), columns=COLUMNS)


def saved(folder: pathlib.Path) -> List[SavedModel]:
    """Trains each model once, and saves it for both sides."""
    train = data(5_000, 1)
    wanted = train["x0"] + train["x1"] * train["x2"]
    trees = xgboost.XGBRegressor(n_estimators=100, max_depth=6, n_jobs=1).fit(train, wanted)
    forest = RandomForestRegressor(100, max_depth=8, random_state=0, n_jobs=1).fit(train, wanted)
    # What MLflow finds itself includes this whole environment.
    packages = [f"{name}=={module.__version__}" for name, module in (("mlflow", mlflow), ("pandas", pd), ("numpy", np))]
    found = []
    for name, model, implementation, file, package in [
        ("XGBoost, 100 trees", trees, "mlserver_xgboost.XGBoostModel", "model.json", "xgboost-cpu"),
        ("scikit-learn forest, 100 trees", forest, "mlserver_sklearn.SKLearnModel", "model.joblib", "scikit-learn"),
    ]:
        ours = folder / package
        theirs = folder / f"mlflow-{package}"
        requirements = [*packages, f"{package}=={version_of(package)}"]
        ours.mkdir()
        # Without a signature, MLflow numbers the columns, and XGBoost rejects them.
        signature = mlflow.models.infer_signature(train.head(), model.predict(train.head()))
        if model is trees:
            model.save_model(ours / file)
            mlflow.xgboost.save_model(model, theirs, pip_requirements=requirements, signature=signature)
        else:
            joblib.dump(model, ours / file)
            mlflow.sklearn.save_model(model, theirs, pip_requirements=requirements, signature=signature)
        settings = {"name": package, "implementation": implementation}
        (ours / "model-settings.json").write_text(json.dumps(settings))
        kind = "float" if model is trees else "double"
        found.append(SavedModel(name, str(ours), str(theirs), model.predict, kind))
    return found


def version_of(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def check(model: str, found: Any, wanted: Any) -> None:
    """Fails if two arrays of predictions do not have the same bits."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.tobytes() != wanted.tobytes():
        raise SystemExit(f"{model}: the answers differ ({found.dtype}, {wanted.dtype})")


def seconds(call: Callable[[], Any]) -> float:
    """Returns how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure_load(model: SavedModel, table: pa.Table, frame: pd.DataFrame, rounds: int, report: Report) -> None:
    """Measures `mlserver.load` beside the library."""
    row = {name: np.array([frame[name][0]]) for name in COLUMNS}
    matrix = frame.to_numpy()[:1].copy()
    scorer = mlserver.load(model.ours)
    for count in range(1, rounds + 1):
        scorer.close()
        report.add("load", model.name, "first prediction", count, 1e3 * seconds(lambda: scorer.predict(row)), "ms")
    # These are the runs that are not counted.
    check(model.name, scorer.predict(table)["predict"], model.library(frame))
    sides = {"mlserver.load": lambda: scorer.predict(table), "library": lambda: model.library(frame)}
    for count in range(1, rounds + 1):
        for form, one in (("an array", matrix), ("a dictionary of columns", row)):
            call = seconds(lambda one=one: [scorer.predict(one) for _ in range(CALLS)]) / CALLS
            report.add("load", model.name, f"one row, {form}", count, 1e6 * call, "µs")
        for side, run in sides.items():
            report.add("load", model.name, side, count, table.num_rows / seconds(run), "rows/s")
    scorer.close()


def measure_transport(
    models: List[SavedModel], folder: pathlib.Path, table: pa.Table, rounds: int, report: Report
) -> None:
    """Measures a model that does next to nothing beside XGBoost of 100 trees."""
    train = data(1_000, 1)
    stump = xgboost.XGBRegressor(n_estimators=1, max_depth=1, n_jobs=1).fit(train, train["x0"])
    path = folder / "stump"
    path.mkdir()
    stump.save_model(path / "model.json")
    settings = {"name": "stump", "implementation": "mlserver_xgboost.XGBoostModel"}
    (path / "model-settings.json").write_text(json.dumps(settings))
    with mlserver.load(str(path)) as transport, mlserver.load(models[0].ours) as scorer:
        for count in range(rounds + 1):
            through, whole = seconds(lambda: transport.predict(table)), seconds(lambda: scorer.predict(table))
            if count:
                share = 100 * through / max(whole - through, 1e-9)
                report.add("transport", models[0].name, "transport", count, 1e3 * through, "ms")
                report.add("transport", models[0].name, "all", count, 1e3 * whole, "ms")
                report.add("transport", models[0].name, "transport by evaluation", count, share, "%")


def session() -> Any:
    """Returns a session of Spark with one core."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.memory", "2g").getOrCreate()


def measure_spark(
    phase: str, models: List[SavedModel], spark: Any, folder: pathlib.Path, rounds: int, report: Report
) -> None:
    """Measures `mlserver.spark.score` and MLflow's `spark_udf` with this manager of environments."""
    rows = spark.read.parquet(str(folder / "rows.parquet"))
    size = pq.ParquetFile(folder / "rows.parquet").metadata.num_rows
    for model in models:
        theirs = mlflow.pyfunc.spark_udf(spark, model.mlflow, result_type=model.result_type, env_manager=phase)

        def score(model: SavedModel = model) -> None:
            scored = mlserver.spark.score(rows, model.ours, keep=["id"])
            scored.write.mode("overwrite").parquet(str(folder / "ours"))

        def apply(theirs: Any = theirs) -> None:
            scored = rows.select("id", theirs(*COLUMNS).alias("predict"))
            scored.write.mode("overwrite").parquet(str(folder / "theirs"))

        for count in range(rounds + 1):
            ours, other = seconds(score), seconds(apply)
            if not count:
                found, wanted = (pq.read_table(folder / side).sort_by("id") for side in ("ours", "theirs"))
                check(model.name, found["id"], wanted["id"])
                check(model.name, found["predict"], wanted["predict"])
                continue
            report.add(phase, model.name, "mlserver.spark.score", count, size / ours, "rows/s")
            report.add(phase, model.name, f"MLflow spark_udf, {phase}", count, size / other, "rows/s")
            report.add(phase, model.name, "ratio", count, other / ours, "times")


def main() -> None:
    """Runs the phases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PHASES, default=PHASES, help="the phases to run")
    options = parser.parse_args()
    report = Report()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engines-"))
    try:
        models = saved(folder)
        frame = data(options.rows, 2)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        rows = table.append_column("id", pa.array(range(options.rows), pa.int64()))
        pq.write_table(rows, folder / "rows.parquet", row_group_size=100_000)
        if "load" in options.only:
            for model in models:
                measure_load(model, table, frame, options.rounds, report)
        if "transport" in options.only:
            measure_transport(models, folder, table, options.rounds, report)
        phases = [phase for phase in ("local", "virtualenv") if phase in options.only]
        if phases:
            spark = session()
            for phase in phases:
                measure_spark(phase, models, spark, folder, options.rounds, report)
            spark.stop()
        print(report.tables())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
