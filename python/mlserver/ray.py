"""Models in Ray Data: `score` adds predictions to a dataset, and `Scorer` is its class for `map_batches`.

    scored = mlserver.ray.score(ray.data.read_parquet("s3://lake/events"), "s3://models/churn", concurrency=(1, 8))

Each actor starts one child process, which evaluates the model; see `mlserver.scoring`. Nodes need the wheel `mlserver` and
pyarrow. Works with Ray 2.9 and later.
"""

import os
import pickle
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import scoring
from ._scoring import shipping
from ._scoring.arrow_job import ArrowJob, engine_type
from ._scoring.options import JobOptions, ScorerOptions
from .version import __version__

__all__ = ["Scorer", "score"]


class Scorer:
    """A model for `Dataset.map_batches` with batches of pyarrow: a call returns the batch with the predictions."""

    def __init__(
        self,
        location: str,
        *,
        shipped: Optional[shipping.ShippedModel] = None,
        archive: Any = None,
        program: Any = None,
        columns: Optional[Sequence[str]] = None,
        keep: Union[str, Sequence[str]] = "*",
        errors: str = "raise",
        **arguments: Any,
    ) -> None:
        """Takes the arguments of `score`. The model is loaded when the actor starts, so that errors are those of its start.

        `archive` and `program` are references to the archive of a large model and to the executable, in Ray's object store.
        Raises `ScoringError` if the model cannot be loaded.
        """
        self._job = JobOptions(columns=columns, keep=keep, errors=errors)
        if archive is not None and shipped is not None:
            shipped = shipped._replace(archive=_fetched(archive))
        if shipped is not None:
            location = shipping.unpack(shipped, _session_folder())
        if program is not None:
            name, content = program
            arguments["executable"] = shipping.write_executable(name, _fetched(content), _session_folder())
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
    ship: bool = False,
    concurrency: Union[int, Tuple[int, int]] = (1, 2),
    batch_size: Union[int, str, None] = 65_536,
    num_cpus: float = 1,
    **options: Any,
) -> Any:
    """Returns a dataset with the columns that are kept, and one for each output of a model.

    The arguments up to `executable` are those of `mlserver.spark.score`. Files of the driver travel to the nodes, through the
    object store if they have more than 64 MiB. `ship` sends this package and the driver's executable, too: nodes, which then
    need pyarrow only, must have the processor and the system of the driver. The others are those of `Dataset.map_batches`:
    `concurrency` is how many actors there are, or the least and the most.

    Raises `ScoringError` if a local model does not exist. The model and the columns are checked where the actors run.
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
    scorer = scoring.Scorer(shipping.snapshot(location, executable), scorer_options)
    arguments: Dict[str, Any] = {
        **_travelling(scorer.location),
        "program": _program(scorer) if ship else None,
        "columns": job.columns,
        "keep": job.keep,
        "errors": job.errors,
        **asdict(scorer_options),
    }
    kind: Any = Scorer
    values: List[Any] = [scorer.location]
    if ship:
        references: Dict[str, Any] = {"program": arguments.pop("program"), "archive": arguments.pop("archive", None)}
        kind, values = _shipped_class(), [__version__, _package(), pickle.dumps((scorer.location, arguments))]
        arguments = references
    return dataset.map_batches(
        kind,
        fn_constructor_args=values,
        fn_constructor_kwargs=arguments,
        batch_format="pyarrow",
        batch_size=batch_size,
        concurrency=concurrency,
        num_cpus=num_cpus,
        **options,
    )


def _travelling(location: str) -> Dict[str, Any]:
    """Returns how a local model travels: with the actors if it is small, otherwise through the object store."""
    model = shipping.as_local_value(location)
    if model is None or model.archive is None or len(model.archive) <= shipping.CLOSURE_BYTES:
        return {"shipped": model}
    import ray

    return {"shipped": model._replace(archive=None), "archive": ray.put(model.archive)}


def _shipped_class() -> Any:
    """Returns the class of actors on nodes that need not have this package.

    Pickle sends a class of a function as its code, and no name of this module may occur in it.
    """

    class ShippedScorer:
        def __init__(self, version: str, package: Any, pickled: bytes, **references: Any) -> None:
            import os
            import pickle
            import sys
            import tempfile

            import ray

            try:
                root = str(ray._private.worker._global_node.get_session_dir_path())
            except AttributeError:
                root = tempfile.gettempdir()
            path = os.path.join(tempfile.mkdtemp(prefix="mlserver-", dir=root), f"mlserver-{version}.zip")
            with open(path, "wb") as file:
                file.write(ray.get(package))
            sys.path.insert(0, path)
            import mlserver.ray
            import mlserver.version

            if mlserver.version.__version__ != version:
                raise RuntimeError(
                    f"this worker of Ray has imported version {mlserver.version.__version__} of the package `mlserver`, and the"
                    f" driver has {version}: install the same version in both"
                )
            location, arguments = pickle.loads(pickled)
            self._scorer = mlserver.ray.Scorer(location, **{**arguments, **references})

        def __call__(self, batch: Any) -> Any:
            return self._scorer(batch)

    return ShippedScorer


def _package() -> Any:
    """Returns a reference to the archive of this package."""
    import ray

    with open(shipping.package_archive(shipping.temporary_folder()), "rb") as file:
        return ray.put(file.read())


def _program(scorer: scoring.Scorer) -> Tuple[str, Any]:
    """Returns the name of the executable on the nodes, and a reference to its content."""
    import ray

    path = shipping.named_executable(scorer.executable, shipping.temporary_folder())
    with open(path, "rb") as file:
        return os.path.basename(path), ray.put(file.read())


def _fetched(reference: Any) -> bytes:
    import ray

    return ray.get(reference)  # type: ignore[no-any-return]


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
