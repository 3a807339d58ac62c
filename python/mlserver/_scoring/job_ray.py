"""The application that `mlserver infer --engine ray` submits.

Ray writes files while a job runs, and keeps those of a failed job. So they are written to a folder that readers ignore, and
moved when all are complete.
"""

import argparse
import os
import posixpath
import sys
import uuid
from typing import Any, Callable, Dict, FrozenSet, List, Set, Tuple

from ..errors import InferenceError, ScoringError
from .jobs import SOURCE_COLUMN, JobCounts, kept_columns, run
from .options import ERROR_COLUMN
from .shipping import shipped_model, snapshot

#: The extensions of input files, by format. Other files of a folder are ignored.
_EXTENSIONS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "tsv": (".tsv", ".tsv.gz"),
    "rows": (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".json.gz"),
    "orc": (".orc",),
}

#: What the name of a folder of files that are not complete begins with.
_PARTIAL = "_temporary-"


def score(options: argparse.Namespace) -> JobCounts:
    """Scores the input, and writes the output. Raises the errors of `mlserver.ray.score`, and `ScoringError`."""
    import ray

    import mlserver.ray

    ray.init(logging_level="warning")
    files, output = _opened(options.output)
    exists = any(not posixpath.basename(path).startswith(_PARTIAL) for path in _entries(files, output))
    if exists and not (options.overwrite or options.resume):
        raise ScoringError(
            f"the output `{options.output}` exists: choose another one, replace it with --overwrite, or add what it lacks with"
            " --resume"
        )
    before = JobCounts()
    done: FrozenSet[str] = frozenset()
    if exists and options.resume:
        before, done = _counted(files, output, options.output)
        before.resumed = before.rows
    source, paths = _inputs(options)
    paths = [path for path in paths if path not in done]
    if not paths:
        if before.rows:
            return before
        raise ScoringError(f"there are no {options.format} files at {', '.join(f'`{path}`' for path in options.input)}")
    dataset = _reader(options.format)(paths, filesystem=source, include_paths=True)
    names: List[str] = [name for name in dataset.schema().names if name != "path"]
    if SOURCE_COLUMN in names:
        raise InferenceError(f"the input has a column `{SOURCE_COLUMN}`, which the output has for its files: rename it")
    location = snapshot(options.model, None) if options.model else shipped_model(options.shipped_model)
    kept = kept_columns(options, names)
    columns = options.columns
    if not columns:
        with mlserver.load(location, version=options.model_version) as scorer:
            columns = scorer.chosen_columns(names)
    processors = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    scored = mlserver.ray.score(
        dataset.rename_columns({"path": SOURCE_COLUMN}),
        location,
        columns=columns,
        outputs=options.outputs or None,
        keep=[*kept, SOURCE_COLUMN],
        errors="column",
        version=options.model_version,
        concurrency=(1, processors),
    )
    partial = posixpath.join(output, f"{_PARTIAL}{uuid.uuid4().hex}")
    files.create_dir(partial, recursive=True)
    try:
        partitions: Dict[str, Any] = {"partition_cols": options.partition_by} if options.partition_by else {}
        scored.write_parquet(partial, filesystem=files, **partitions)
        written, _ = _counted(files, partial, options.output)
        if options.overwrite:
            _remove(files, output, partial)
        _publish(files, partial, output)
    finally:
        files.delete_dir(partial)
    return JobCounts(before.rows + written.rows, before.failed + written.failed, before.resumed)


def _opened(location: str) -> Tuple[Any, str]:
    """Returns the file system of a path or URI, and the path in it."""
    from pyarrow import fs

    if "://" in location:
        system, path = fs.FileSystem.from_uri(location)
        return system, path.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(location)


def _entries(files: Any, folder: str, recursive: bool = False) -> List[str]:
    from pyarrow import fs

    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=recursive))
    return [entry.path for entry in found if not recursive or entry.is_file]


def _inputs(options: argparse.Namespace) -> Tuple[Any, List[str]]:
    """Returns the files of the inputs, which are in one file system, and folders become their files."""
    from pyarrow import fs

    system, paths = None, []
    for location in options.input:
        other, path = _opened(location)
        if system is not None and not system.equals(other):
            raise ScoringError(f"`{location}` is in another file system than the first input: run a job for each")
        system = other
        (info,) = system.get_file_info([path])
        if info.type == fs.FileType.NotFound:
            raise ScoringError(f"there is no file or folder `{location}`")
        extensions = _EXTENSIONS[options.format]
        found = [path] if info.is_file else sorted(_entries(system, path, recursive=True))
        paths += [each for each in found if info.is_file or each.endswith(extensions)]
    return system, paths


def _reader(name: str) -> Callable[..., Any]:
    import ray

    if name == "tsv":
        from pyarrow import csv

        def read_tsv(paths: List[str], **options: Any) -> Any:
            return ray.data.read_csv(paths, parse_options=csv.ParseOptions(delimiter="\t"), **options)

        return read_tsv
    names = {"parquet": "read_parquet", "csv": "read_csv", "rows": "read_json", "orc": "read_orc"}
    found = getattr(ray.data, names[name], None)
    if found is None:
        raise ScoringError(f"Ray {ray.__version__} does not read {name}: use a newer Ray, or Parquet")
    return found  # type: ignore[no-any-return]


def _counted(files: Any, folder: str, shown: str) -> Tuple[JobCounts, FrozenSet[str]]:
    """Returns the numbers of rows and failed rows of an output, and its files of the input."""
    from pyarrow import dataset

    found = dataset.dataset(_parquet(files, folder), filesystem=files, format="parquet")
    if SOURCE_COLUMN not in found.schema.names or ERROR_COLUMN not in found.schema.names:
        raise ScoringError(
            f"the output `{shown}` was not written by `mlserver infer --engine`, since it lacks the columns `{SOURCE_COLUMN}`"
            f" and `{ERROR_COLUMN}`: choose another one"
        )
    counts = JobCounts()
    sources: Set[str] = set()
    for batch in found.to_batches(columns=[SOURCE_COLUMN, ERROR_COLUMN]):
        counts.rows += batch.num_rows
        counts.failed += batch.num_rows - batch.column(1).null_count
        sources.update(batch.column(0).unique().to_pylist())
    return counts, frozenset(sources)


def _parquet(files: Any, folder: str) -> List[str]:
    found = [path for path in _entries(files, folder, recursive=True) if path.endswith(".parquet")]
    return [path for path in found if f"/{_PARTIAL}" not in path[len(folder) :]]


def _remove(files: Any, folder: str, partial: str) -> None:
    """Removes an earlier output."""
    from pyarrow import fs

    for entry in files.get_file_info(fs.FileSelector(folder)):
        if entry.path == partial:
            continue
        if entry.is_file:
            files.delete_file(entry.path)
        else:
            files.delete_dir(entry.path)


def _publish(files: Any, partial: str, folder: str) -> None:
    """Moves complete files to the output."""
    for path in _entries(files, partial, recursive=True):
        target = posixpath.join(folder, posixpath.relpath(path, partial))
        files.create_dir(posixpath.dirname(target), recursive=True)
        files.move(path, target)


if __name__ == "__main__":
    sys.exit(run(score))
