"""What a task of an engine does: batches of pyarrow in, the kept columns and the predictions out."""

import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from ..scoring import OutputSchema, Scorer
from .outputs import arrow_type

__all__ = ["ArrowJob", "ScoredCounts", "engine_type"]


class ScoredCounts(NamedTuple):
    """What a part of a task did."""

    rows: int
    failed: int
    #: How long the predictions took.
    seconds: float


class ArrowJob(NamedTuple):
    """How the batches of a task are scored. It can be pickled."""

    #: The columns that the model gets, in the order of its features, as they are called in the batches.
    columns: Sequence[str]
    #: Their names, by which the model knows them.
    names: Sequence[str]
    #: The columns of the batches that stay, by their places.
    keep: Sequence[int]
    outputs: Sequence[OutputSchema]
    #: The names of the columns of the result.
    result_names: Sequence[str]
    #: Whether failed rows get a reason instead of failing the task.
    keeps_failures: bool
    #: How many bytes of batches are scored together. Larger batches are cut.
    batch_bytes: int

    def run(
        self, scorer: Scorer, batches: Iterable[Any], count: Optional[Callable[[ScoredCounts], None]] = None
    ) -> Iterator[Any]:
        """Yields a batch with the columns of the result for each batch. At most `batch_bytes` and one batch wait in memory."""
        waiting: List[Any] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(batch)
            size += batch.nbytes
            if size >= self.batch_bytes:
                yield from self._score(scorer, waiting, count)
                waiting, size = [], 0
        if waiting:
            yield from self._score(scorer, waiting, count)

    def _score(
        self, scorer: Scorer, batches: List[Any], count: Optional[Callable[[ScoredCounts], None]]
    ) -> Iterator[Any]:
        import pyarrow as pa

        begin = time.perf_counter()
        inputs = pa.Table.from_batches(batches).select(list(self.columns)).rename_columns(list(self.names))
        order = list(self.names)
        arrays, failed = scorer.score_arrow(inputs, order, self.batch_bytes, self.keeps_failures)
        predicted = [self._output(arrays, output, inputs.num_rows) for output in self.outputs]
        if self.keeps_failures:
            predicted.append(pa.array([failed.get(row) for row in range(inputs.num_rows)], pa.string()))
        if count is not None:
            count(ScoredCounts(inputs.num_rows, len(failed), time.perf_counter() - begin))
        start = 0
        for batch in batches:
            parts = [array.slice(start, batch.num_rows) for array in predicted]
            kept = [batch.column(place) for place in self.keep]
            yield pa.RecordBatch.from_arrays([*kept, *parts], names=list(self.result_names))
            start += batch.num_rows

    def _output(self, arrays: Dict[str, Any], output: OutputSchema, rows: int) -> Any:
        """Returns an output with the type that was announced for it."""
        import pyarrow as pa

        kind = engine_type(output)
        found = arrays.get(output.name)
        if found is None and not arrays:
            return pa.nulls(rows, kind)  # all rows failed
        if found is None:
            from ..errors import InferenceError

            raise InferenceError(f"the model did not answer with `{output.name}`, but with {', '.join(arrays)}")
        return found if found.type == kind else found.cast(kind)


def engine_type(output: OutputSchema) -> Any:
    """Returns the type of pyarrow that an output has in engines: unsigned integers are signed ones that hold them."""
    import pyarrow as pa

    kind = arrow_type(output.datatype, output.shape[1:])
    inner = kind.value_type if pa.types.is_list(kind) else kind
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    inner = wider.get(inner, inner)
    return pa.list_(inner) if pa.types.is_list(kind) else inner
