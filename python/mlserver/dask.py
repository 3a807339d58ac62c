"""Models in Dask: `score` adds predictions to a data frame.

    scored = mlserver.dask.score(dask.dataframe.read_parquet("s3://lake/events"), "s3://models/churn")

Each worker starts one child process, which evaluates the model; see `mlserver.scoring`. Workers need the wheel `mlserver`.
"""

import os
from typing import Any, List, Optional, Sequence, Tuple, Union

from ._scoring import shipping
from ._scoring.options import JobOptions, ScorerOptions, check_unique
from .scoring import OutputSchema, Scorer

__all__ = ["score"]


def score(
    ddf: Any,
    location: "str | os.PathLike[str]",
    *,
    columns: Optional[Sequence[str]] = None,
    outputs: Optional[Sequence[str]] = None,
    keep: Union[str, Sequence[str]] = "*",
    model_name: Optional[str] = None,
    version: Optional[str] = None,
    threads: int = 1,
    missing: str = "nan",
    executable: Optional[str] = None,
) -> Any:
    """Returns a data frame with the columns that are kept, and one for each element of each output of a model.

    The arguments are those of `mlserver.spark.score`. Names and index are those of pandas: `predict_proba[0]`,
    `predict_proba[1]`, ... Files of the client travel to the workers.

    The model is loaded in this process first. Raises `InferenceError` if a column is missing, has a type that models do not
    take, or has the name of an output, and `ScoringError` if the model cannot be loaded.
    """
    job = JobOptions(columns=columns, keep=keep)
    options = ScorerOptions(
        model_name=model_name,
        version=version,
        outputs=outputs,
        threads=threads,
        missing=missing,
        executable=executable,
    )
    scorer = Scorer(shipping.snapshot(location, executable), options)
    names = [str(name) for name in ddf.columns]
    kept = job.kept(names)
    used = scorer.chosen_columns(names, job.columns)
    check_unique(used, names)
    empty = ddf._meta[used]
    schema = scorer.schema({name: _datatype(name, empty[name]) for name in used}, used)
    meta = ddf._meta[kept].copy()
    types = dict(column for output in schema for column in _columns(output))
    for name in job.added(list(types), kept):
        meta[name] = _empty(types[name])
    shipped = _travelling(scorer.location)
    return ddf.map_partitions(_score_partition, scorer, shipped, used, kept, list(meta.columns), meta=meta)


def _travelling(location: str) -> Any:
    """Returns a local model for the tasks, as part of them or, if it is large, as data of the workers. `None` for a URI."""
    model = shipping.as_local_value(location)
    if model is None or model.archive is None or len(model.archive) <= shipping.CLOSURE_BYTES:
        return model
    from dask import delayed

    try:
        from distributed import default_client

        client = default_client()
    except (ImportError, ValueError):
        return model  # the tasks run in this process, or in its children
    # In a list, because the fields of a tuple would be scattered one by one.
    (future,) = client.scatter([model], hash=False)
    return delayed(future)


def _score_partition(
    frame: Any,
    scorer: Scorer,
    shipped: Optional[shipping.ShippedModel],
    used: List[str],
    kept: List[str],
    names: List[str],
) -> Any:
    """Scores a partition on a worker."""
    import pandas

    if shipped is not None:
        scorer = scorer.moved(shipping.unpack(shipped, _worker_folder()))
    found = scorer.predict(frame[used], used)
    return pandas.concat([frame[kept], found], axis=1)[names]


def _worker_folder() -> str:
    """Returns the folder of the worker, which Dask removes, or a temporary one without workers."""
    try:
        from distributed import get_worker

        return str(get_worker().local_directory)
    except (ImportError, ValueError):
        return shipping.temporary_folder()


def _datatype(name: str, series: Any) -> str:
    from ._scoring.tables import series_column

    if getattr(series.dtype, "kind", "") == "O":
        return "BYTES"  # without rows, all that is known
    return series_column(name, series, "nan").datatype


def _columns(output: OutputSchema) -> List[Tuple[str, str]]:
    """Returns the names and types of the columns of an output."""
    from ._tensor import NUMPY_NAMES

    dtype = NUMPY_NAMES.get(output.datatype, "object")
    width = 1
    for size in output.shape[1:]:
        width *= size
    if output.shape[1:] in ((), (1,)):
        return [(output.name, dtype)]
    return [(f"{output.name}[{place}]", dtype) for place in range(width)]


def _empty(dtype: str) -> Any:
    import pandas

    return pandas.Series([], dtype=dtype)
