"""The rows of a call as requests: batches, of which one is copied while others are evaluated."""

import collections
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import InferenceError
from .child import Call, Child
from .columns import Buffer
from .inputs import LoadedModel, RequestPlan
from .memory import aligned
from .outputs import Predictions, read_outputs

__all__ = ["BATCH_BYTES", "score"]

#: The size of a batch, in bytes of its inputs, unless the rows of a call may not be split.
BATCH_BYTES = 8 << 20

#: Smaller inputs are sent over the socket: one message instead of a read for each tensor.
_SMALL_BYTES = 32 << 10
#: Bytes of an answer for each row, for which there is room in the memory file. Longer answers come over the socket.
_ANSWER_ROW_BYTES = 64


class _Range(NamedTuple):
    """Rows that are sent together."""

    start: int
    stop: int


class _EncodedBatch(NamedTuple):
    """A request that is not sent yet."""

    rows: _Range
    head: Dict[str, Any]
    #: The buffers of each tensor.
    tensors: List[List[Buffer]]
    sizes: List[int]


class _SentBatch(NamedTuple):
    """A request in flight."""

    rows: _Range
    call: Call


def score(
    child: Child,
    model: LoadedModel,
    plan: RequestPlan,
    outputs: Optional[Sequence[str]],
    batch_bytes: int = BATCH_BYTES,
    keeps_failures: bool = False,
) -> Predictions:
    """Returns the answers to all rows of a call.

    With `keeps_failures`, rows that the model rejects are recorded instead of raised: a rejected batch is halved until the
    faulty row is alone. Raises `InferenceError` and `ScoringError`.
    """
    found = Predictions(plan.rows)
    if plan.invalid and not keeps_failures:
        row = min(plan.invalid)
        raise InferenceError(f"row {row}: {plan.invalid[row]}")
    found.failed.update(plan.invalid)
    waiting: Deque[_Range] = collections.deque()
    ranges = _ranges(plan, batch_bytes if model.is_batched or keeps_failures else None)
    sent: Deque[_SentBatch] = collections.deque()
    batch: Optional[_EncodedBatch] = None
    try:
        while True:
            if batch is None:
                rows = waiting.popleft() if waiting else next(ranges, None)
                batch = _encode(plan, rows, outputs) if rows is not None else None
            if batch is not None and len(sent) < child.in_flight:
                # Waits for memory only without having some: threads would wait for each other.
                started = _send(child, batch, wait=not sent)
                if started is not None:
                    sent.append(started)
                    batch = None
                    continue
            if not sent:
                return found
            rejected = _receive(child, sent.popleft(), found, keeps_failures)
            waiting.extend(rejected)
    finally:
        for each in sent:
            child.abandon(each.call)


def _ranges(plan: RequestPlan, batch_bytes: Optional[int]) -> Iterator[_Range]:
    """Yields ranges of the rows that can be sent, of about `batch_bytes` each, or of all rows."""
    row_bytes = sum(tensor.source.row_bytes() for tensor in plan.tensors)
    most = plan.rows if batch_bytes is None else int(batch_bytes // max(row_bytes, 1.0))
    start = 0
    for stop in [*sorted(plan.invalid), plan.rows]:
        if start < stop or not plan.rows:
            yield from _cut(start, stop, max(most, 1))
        start = stop + 1


def _cut(start: int, stop: int, most: int) -> Iterator[_Range]:
    while stop - start > most:
        yield _Range(start, start + most)
        start += most
    yield _Range(start, stop)


def _encode(plan: RequestPlan, rows: _Range, outputs: Optional[Sequence[str]]) -> _EncodedBatch:
    start, stop = rows
    inputs, tensors, sizes = [], [], []
    for name, source, is_text in plan.tensors:
        buffers = source.encode(start, stop)
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        tensor: Dict[str, Any] = {"name": name, "datatype": source.datatype, "shape": [stop - start, *source.row_shape]}
        if is_text:
            tensor["parameters"] = {"content_type": "str"}
        if source.datatype == "BYTES":
            tensor["count"] = (stop - start) * _product(source.row_shape)
        tensor["size"] = size
        inputs.append(tensor)
        tensors.append(buffers)
        sizes.append(size)
    head: Dict[str, Any] = {"inputs": inputs}
    if plan.parameters is not None:
        head["parameters"] = plan.parameters
    if outputs is not None:
        head["outputs"] = [{"name": name} for name in outputs]
    return _EncodedBatch(rows, head, tensors, sizes)


def _send(child: Child, batch: _EncodedBatch, wait: bool) -> Optional[_SentBatch]:
    """Sends a batch, or returns `None` if it has to wait for memory and may not."""
    total = sum(map(aligned, batch.sizes))
    region = None
    if total > _SMALL_BYTES:
        room = _ANSWER_ROW_BYTES * (batch.rows.stop - batch.rows.start)
        region = child.take_region(total + room, wait)
        if region is None and not wait and child.can_hold(total + room):
            return None
    if region is None:
        return _SentBatch(batch.rows, child.start(batch.head, _tail(batch), None))
    try:
        at = 0
        for tensor, buffers, size in zip(batch.head["inputs"], batch.tensors, batch.sizes):
            tensor["offset"], place = region.offset + at, at
            for buffer in buffers:
                region.view[place : place + len(buffer)] = buffer
                place += len(buffer)
            at += aligned(size)
        batch.head["answer"] = {"offset": region.offset + at, "size": region.size - at}
    except BaseException:
        child.give_back(region)
        raise
    return _SentBatch(batch.rows, child.start(batch.head, (), region))


def _tail(batch: _EncodedBatch) -> List[Buffer]:
    tail: List[Buffer] = []
    for buffers, size in zip(batch.tensors, batch.sizes):
        tail += buffers
        if size % 8:
            tail.append(bytes(-size % 8))
    return tail


def _receive(child: Child, sent: _SentBatch, found: Predictions, keeps_failures: bool) -> Tuple[_Range, ...]:
    """Waits for an answer, and adds it. Returns the halves of a batch that was rejected."""
    start, stop = sent.rows
    try:
        head, tail = child.finish(sent.call)
        try:
            found.add(read_outputs(head, tail, sent.call.region), start, stop)
        finally:
            child.release(sent.call)
    except InferenceError as error:
        if not keeps_failures:
            raise
        if stop - start > 1:
            middle = (start + stop) // 2
            return _Range(start, middle), _Range(middle, stop)
        found.failed[start] = str(error)
    return ()


def _product(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
