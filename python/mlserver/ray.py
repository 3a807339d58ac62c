"""Models in Ray Data: `score` adds predictions to a dataset, and `Scorer` is its class for `map_batches`.

    scored = mlserver.ray.score(ray.data.read_parquet("s3://lake/events"), "s3://models/churn", concurrency=(1, 8))

Each actor starts one child process, which evaluates the model; see `mlserver.scoring`. Nodes need the wheel `mlserver` and
pyarrow. Works with Ray 2.9 and later.
"""

import os
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import scoring
from ._scoring import shipping
from ._scoring.arrow_job import ArrowJob, engine_type
from ._scoring.options import JobOptions, ScorerOptions

__all__ = ["Scorer", "score"]


class Scorer:
    """A model for `Dataset.map_batches` with batches of pyarrow: a call returns the batch with the predictions."""

    def __init__(
        self,
        location: str,
        *,
        shipped: Optional[shipping.ShippedModel] = None,
        columns: Optional[Sequence[str]] = None,
        keep: Union[str, Sequence[str]] = "*",
        errors: str = "raise",
        **arguments: Any,
    ) -> None:
        """Takes the arguments of `score`. The model is loaded when the actor starts, so that errors are those of its start.

        Raises `ScoringError` if the model cannot be loaded.
        """
        self._job = JobOptions(columns=columns, keep=keep, errors=errors)
        if shipped is not None:
            location = shipping.unpack(shipped, _session_folder())
        self._scorer = scoring.Scorer(location, **arguments)
        self._schema: Optional[List[scoring.OutputSchema]] = None
        self._scorer.features()

    def __call__(self, batch: Any) -> Any:
        """Returns a table of pyarrow with the kept columns and the predictions.

        Raises `InferenceError` if a column is missing or has a type that models do not take, and, unless failures are kept in a
        column, if the model rejects a row.
        """
        names = list(batch.column_names)
        used = self._scorer.chosen_columns(names, self._job.columns)
        if self._schema is None:
            self._schema = self._scorer.schema(
                {name: _datatype(name, batch.schema.field(name).type) for name in used}, used
            )
        kept = self._job.kept(names)
        added = self._job.added([output.name for output in self._schema], kept)
        import pyarrow as pa

        job = ArrowJob(
            columns=used,
            names=used,
            keep=[names.index(name) for name in kept],
            outputs=self._schema,
            result_names=[*kept, *added],
            keeps_failures=self._job.keeps_failures,
            batch_bytes=self._job.batch_bytes,
        )
        parts = list(job.run(self._scorer, batch.to_batches()))
        if parts:
            return pa.Table.from_batches(parts)
        empty = [batch.column(name).slice(0, 0) for name in kept]
        empty += [pa.nulls(0, engine_type(output)) for output in self._schema]
        empty += [pa.nulls(0, pa.string())] if self._job.keeps_failures else []
        return pa.Table.from_arrays(empty, names=[*kept, *added])


def score(
    dataset: Any,
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
    executable: Optional[str] = None,
    concurrency: Union[int, Tuple[int, int]] = (1, 2),
    batch_size: Union[int, str, None] = 65_536,
    num_cpus: float = 1,
    **options: Any,
) -> Any:
    """Returns a dataset with the columns that are kept, and one for each output of a model.

    The arguments up to `executable` are those of `mlserver.spark.score`. Files of the driver travel to the nodes if they have
    at most 64 MiB. The others are those of `Dataset.map_batches`: `concurrency` is how many actors there are, or the least and
    the most.

    Raises `ScoringError` if a local model is too large to travel or does not exist. The model and the columns are checked where
    the actors run.
    """
    job = JobOptions(columns=columns, keep=keep, errors=errors)
    scorer_options = ScorerOptions(
        model_name=model_name,
        version=version,
        outputs=outputs,
        threads=threads,
        missing=missing,
        executable=executable,
    )
    scorer = scoring.Scorer(location, scorer_options)
    arguments: Dict[str, Any] = {
        "shipped": shipping.ship_in_closure(scorer.location),
        "columns": job.columns,
        "keep": job.keep,
        "errors": job.errors,
        **asdict(scorer_options),
    }
    return dataset.map_batches(
        Scorer,
        fn_constructor_args=[scorer.location],
        fn_constructor_kwargs=arguments,
        batch_format="pyarrow",
        batch_size=batch_size,
        concurrency=concurrency,
        num_cpus=num_cpus,
        **options,
    )


def _session_folder() -> str:
    """Returns the folder of Ray's session on this node, or a temporary one outside of Ray."""
    try:
        import ray

        return str(ray._private.worker._global_node.get_session_dir_path())
    except (ImportError, AttributeError):
        return shipping.temporary_folder()


def _datatype(name: str, kind: Any) -> str:
    """Returns the datatype of a column, from an empty one."""
    import pyarrow as pa

    from ._scoring.columns import ArrowColumn

    return ArrowColumn(name, pa.chunked_array([], kind), "nan").datatype
