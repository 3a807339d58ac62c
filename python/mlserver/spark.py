"""Models in Spark: `score` adds predictions to a data frame, `udf` makes a function for expressions and SQL.

    scored = mlserver.spark.score(spark.read.parquet("s3a://lake/events"), "s3://models/churn")

Each Python worker of an executor starts one child process, which evaluates the model; see `mlserver.scoring`. Executors need
the wheel `mlserver` and pyarrow. Works with Spark 3.4 and later, and with Spark Connect.
"""

import os
import pathlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Union

from ._scoring import shipping
from ._scoring.arrow_job import ArrowJob, ScoredCounts, engine_type
from ._scoring.batches import BATCH_BYTES
from ._scoring.options import JobOptions, ScorerOptions, check_unique
from .errors import InferenceError, ScoringError
from .scoring import OutputSchema, Scorer

__all__ = ["ScoringMetrics", "metrics", "score", "udf"]

#: After how many seconds without a task the child of a Python worker ends.
IDLE = 60.0

#: The attribute of a data frame that has its counts.
_COUNTS = "_mlserver_counts"


class ScoringMetrics(NamedTuple):
    """What the tasks of a scored data frame have done so far. Tasks that were tried again count each time."""

    rows: int
    failed: int
    #: How long predictions took in all tasks together.
    seconds: float


def score(
    df: Any,
    location: "str | os.PathLike[str]",
    *,
    columns: Optional[Sequence[str]] = None,
    outputs: Optional[Sequence[str]] = None,
    keep: Union[str, Sequence[str]] = "*",
    errors: str = "raise",
    model_name: Optional[str] = None,
    version: Optional[str] = None,
    threads: int = 1,
    missing: str = "nan",
    batch_bytes: int = BATCH_BYTES,
    executable: "str | os.PathLike[str] | None" = None,
    ship: bool = False,
) -> Any:
    """Returns a data frame with the columns of `df` that are kept, and one for each output of a model.

    An output has its own type; one of several elements for each row is an array, and text is a string.

    - `location`, `outputs`, `model_name`, `version`, `threads`, `missing`: as in `mlserver.load`. Files of the driver travel to
      the executors. A model of a store is fetched once, by the driver, and travels like them.
    - `columns`: the columns of the features, in their order. Otherwise they are found by the names of the features; a model
      that has none gets all columns. A single column may have all features of a row, as an array or as a vector of
      `pyspark.ml`.
    - `keep`: the columns to keep, or `*` for all.
    - `errors`: `raise` fails the task of a row that the model rejects; `column` adds `mlserver_error` with the reason, and the
      predictions of the row are null.
    - `batch_bytes`: how many bytes of rows are sent to the model together. Spark's batches are joined or cut.
    - `executable`: the path of `mlserver` on the executors and on the driver; that of the wheel if it is `None`.
    - `ship`: sends this package and the driver's executable to the executors, which then need pyarrow only. They must have the
      processor and the system of the driver.

    The model is loaded on the driver first. Raises `InferenceError` if a column is missing, has a type that models do not take,
    or has the name of an output, and `ScoringError` if the model cannot be loaded.
    """
    options = JobOptions(columns=columns, keep=keep, errors=errors, batch_bytes=batch_bytes)
    scorer_options = ScorerOptions(
        model_name=model_name,
        version=version,
        outputs=outputs,
        threads=threads,
        missing=missing,
        idle=IDLE,
        executable=executable,
    )
    scorer = Scorer(shipping.snapshot(location, executable), scorer_options)
    names: List[str] = list(df.columns)
    kept = options.kept(names)
    types = {field.name: field.dataType for field in df.schema.fields}
    used = scorer.chosen_columns(names, options.columns, [name for name in names if _is_list(types[name])])
    check_unique(used, names)
    fields = {field.name: field for field in df.schema.fields}
    schema = scorer.schema({name: _datatype(fields[name]) for name in used}, used)
    added = options.added([each.name for each in schema], kept)
    # Columns are called by their places, because Spark would look for a field where a name has a dot.
    places = [names.index(name) for name in dict.fromkeys([*kept, *used])]
    safe = {names[place]: f"c{place}" for place in places}
    narrow = df.toDF(*[f"c{place}" for place in range(len(names))]).select(*[f"c{place}" for place in places])
    inputs = dict(safe)
    for name in used:
        if _is_vector(types[name]):
            # Beside the column itself, which may be kept. Arrow has no vectors.
            inputs[name] = f"v{names.index(name)}"
            narrow = narrow.withColumn(inputs[name], _as_array(df.sparkSession, safe[name]))
    job = ArrowJob(
        columns=[inputs[name] for name in used],
        names=used,
        keep=[places.index(names.index(name)) for name in kept],
        outputs=schema,
        result_names=[*(safe[name] for name in kept), *(f"o{place}" for place in range(len(added)))],
        keeps_failures=options.keeps_failures,
        batch_bytes=options.batch_bytes,
    )
    counts = _counts(df)
    result = _result_type(df, kept, types, job, schema)
    task = _Task(
        scorer,
        _ship(df.sparkSession, scorer.location),
        job,
        counts,
        _ship_code(df.sparkSession, scorer) if ship else None,
    )
    scored = narrow.mapInArrow(_mapper(task), result).toDF(*kept, *added)
    setattr(scored, _COUNTS, counts)
    return scored


def udf(
    location: "str | os.PathLike[str]",
    *,
    output: Optional[str] = None,
    columns: Optional[Dict[str, str]] = None,
    model_name: Optional[str] = None,
    version: Optional[str] = None,
    threads: int = 1,
    missing: str = "nan",
    executable: "str | os.PathLike[str] | None" = None,
    ship: bool = False,
) -> Any:
    """Returns a function of columns for expressions, and for SQL with `spark.udf.register`.

    It takes the columns of the features in their order, one struct, whose fields are found by the names of the features, or one
    array with all features (of a vector, `pyspark.ml.functions.vector_to_array`). It needs pandas on the executors. Spark
    itself converts integers with nulls to floats for it; `score` does not have this limit, and is faster.

    - `output`: which output of the model the function returns, the first one by default.
    - `columns`: the names and datatypes (`FP64`, `BYTES`) of the columns, which are only needed if the model does not declare
      them.
    - `ship`: as for `score`.

    Raises `ScoringError` if the model cannot be loaded, and `InferenceError` if its outputs are unknown.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf

    options = ScorerOptions(
        model_name=model_name,
        version=version,
        outputs=None if output is None else [output],
        threads=threads,
        missing=missing,
        idle=IDLE,
        executable=executable,
    )
    scorer = Scorer(shipping.snapshot(location, executable), options)
    schema = scorer.schema(columns)[0]
    session = SparkSession.getActiveSession()
    if session is None:
        raise ScoringError("there is no active Spark session: create one before `udf`")
    task = _Task(scorer, _ship(session, scorer.location), None, None, _ship_code(session, scorer) if ship else None)
    return pandas_udf(_column_function(task, schema.name), returnType=_spark_type(engine_type(schema)))


def metrics(scored: Any) -> ScoringMetrics:
    """Returns what the tasks of a data frame that `score` returned have done in the actions so far.

    Raises `ScoringError` for other data frames, also for those derived from it, and with Spark Connect, which has no
    accumulators.
    """
    counts = getattr(scored, _COUNTS, None)
    if counts is None:
        raise ScoringError(
            "the data frame has no counts: pass what `mlserver.spark.score` returned, without Spark Connect"
        )
    return ScoringMetrics(*(counter.value for counter in counts))


class _Task(NamedTuple):
    """What travels to the executors."""

    scorer: Scorer
    shipped: Optional[shipping.ShippedModel]
    job: Optional[ArrowJob]
    counts: Optional[List[Any]]
    #: The name of the executable among the files of the session, `None` if executors have their own.
    executable: Optional[str]

    def local_scorer(self) -> Scorer:
        """Returns the scorer for the model on this node."""
        if self.shipped is None and self.executable is None:
            return self.scorer
        location = None if self.shipped is None else _unpacked(self.shipped)
        return self.scorer.moved(location, None if self.executable is None else _session_file(self.executable))

    def add(self, counts: ScoredCounts) -> None:
        """Adds to the accumulators."""
        for counter, value in zip(self.counts or (), counts):
            counter.add(value)


def _mapper(task: _Task) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def score_batches(batches: Iterable[Any]) -> Iterator[Any]:
        assert task.job is not None
        yield from task.job.run(task.local_scorer(), batches, task.add if task.counts else None)

    return score_batches


def _column_function(task: _Task, output: str) -> Any:
    import pandas as pd

    def score_columns(*columns: pd.Series) -> pd.Series:
        scorer = task.local_scorer()
        if len(columns) == 1 and isinstance(columns[0], pd.DataFrame):
            found = scorer.predict({name: columns[0][name] for name in columns[0].columns})
        elif len(columns) == 1 and len(columns[0]) and hasattr(columns[0].iloc[0], "dtype"):
            import numpy

            found = scorer.predict({"features": numpy.stack(list(columns[0]))}, ["features"])
        else:
            names = scorer.features() or [f"c{place}" for place in range(len(columns))]
            if len(names) != len(columns):
                raise InferenceError(f"the function has {len(columns)} columns, but the model expects {len(names)}")
            found = scorer.predict(dict(zip(names, columns)))
        values = found[output]
        return pd.Series(list(values) if values.ndim > 1 else values)

    return score_columns


def _datatype(field: Any) -> str:
    """Returns the datatype of a column. Raises `InferenceError` for types that models do not take."""
    kind = field.dataType
    if _is_vector(kind):
        # What pyspark.ml has written about the vectors.
        size = (field.metadata.get("ml_attr") or {}).get("num_attrs", "")
        return f"FP64[{size}]"
    if kind.typeName() == "array" and kind.elementType.typeName() in _ELEMENTS:
        return f"{_ELEMENTS[kind.elementType.typeName()]}[]"
    datatype = _DATATYPES.get(kind.typeName())
    if datatype is None:
        raise InferenceError(
            f"column `{field.name}` is {kind.simpleString()}, which models do not take: cast it to a number or a string, or"
            " choose other columns with `columns`"
        )
    return datatype


def _is_list(kind: Any) -> bool:
    return _is_vector(kind) or kind.typeName() == "array"


def _is_vector(kind: Any) -> bool:
    """Reports whether a type is that of the vectors of `pyspark.ml`, or of `pyspark.mllib`."""
    return type(kind).__name__ == "VectorUDT"


def _as_array(session: Any, column: str) -> Any:
    """Returns a column of vectors as arrays."""
    if _is_remote(session):
        from pyspark.ml.connect.functions import vector_to_array
    else:
        from pyspark.ml.functions import vector_to_array
    return vector_to_array(column)


#: The datatypes of the elements of arrays, which stay as they are.
_ELEMENTS = {"byte": "INT8", "short": "INT16", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64"}

_DATATYPES = {
    "boolean": "BOOL",
    "byte": "INT32",
    "short": "INT32",
    "integer": "INT32",
    "long": "INT64",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
    "char": "BYTES",
    "varchar": "BYTES",
    "binary": "BYTES",
    "void": "FP64",
}


def _spark_type(kind: Any) -> Any:
    """Returns Spark's type of one of pyarrow."""
    import pyarrow as pa
    from pyspark.sql import types

    if pa.types.is_list(kind):
        return types.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    names = {
        "bool": types.BooleanType,
        "int8": types.ByteType,
        "int16": types.ShortType,
        "int32": types.IntegerType,
        "int64": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "string": types.StringType,
    }
    return names[str(kind)]()


def _result_type(
    df: Any, kept: Sequence[str], types: Dict[str, Any], job: ArrowJob, schema: Sequence[OutputSchema]
) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    nullable = {field.name: field.nullable for field in df.schema.fields}
    kinds = [(types[name], nullable[name]) for name in kept]
    kinds += [(_spark_type(engine_type(output)), True) for output in schema]
    if job.keeps_failures:
        kinds.append((StringType(), True))
    return StructType([StructField(name, *kind) for name, kind in zip(job.result_names, kinds)])


def _counts(df: Any) -> Optional[List[Any]]:
    """Returns accumulators of rows, failed rows and seconds; `None` with Spark Connect."""
    if _is_remote(df.sparkSession):
        return None
    context = df.sparkSession.sparkContext
    return [context.accumulator(0), context.accumulator(0), context.accumulator(0.0)]


def _is_remote(session: Any) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def _ship(session: Any, location: str) -> Optional[shipping.ShippedModel]:
    """Brings a model of the driver's disk to the executors. Returns `None` for URIs, which they read themselves."""
    if not os.path.isabs(location):
        return None
    if shipping.model_bytes(location) <= shipping.CLOSURE_BYTES:
        return shipping.as_value(location)
    model, path = shipping.as_file(location, shipping.temporary_folder())
    _add_file(session, path)
    return model


def _ship_code(session: Any, scorer: Scorer) -> str:
    """Brings this package and the executable to the executors. Returns the name of the executable among their files."""
    folder = shipping.temporary_folder()
    package = shipping.package_archive(folder)
    if _is_remote(session):
        session.addArtifacts(package, pyfile=True)
    else:
        session.sparkContext.addPyFile(package)
    path = shipping.named_executable(scorer.executable, folder)
    _add_file(session, path)
    return os.path.basename(path)


def _add_file(session: Any, path: str) -> None:
    """Adds a file to the session. Spark serves it from where it is, as long as the session lasts."""
    if _is_remote(session):
        session.addArtifacts(path, file=True)
    else:
        # Of a path, Spark would follow the link, and name the file after its target.
        session.sparkContext.addFile(pathlib.Path(path).as_uri())


def _session_file(name: str) -> str:
    """Returns the path of an executable on this node."""
    from pyspark import SparkFiles

    path: str = SparkFiles.get(name)
    shipping.make_executable(path)
    return path


def _unpacked(model: shipping.ShippedModel) -> str:
    """Returns the path of a model on this node. It is in the folder of the session's files, which Spark removes."""
    from pyspark import SparkFiles

    file = SparkFiles.get(model.file_name) if model.archive is None else None
    return shipping.unpack(model, SparkFiles.getRootDirectory(), file)
