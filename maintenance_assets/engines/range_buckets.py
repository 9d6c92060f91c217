"""Rows gathered by output, spilled to disk as sorted runs when memory runs out, and merged."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from maintenance_assets.planning.orderable import orderable_column

POSITION = "__maintenance_position"
"""Where a row was: makes the order of equal rows the same on every engine and at every run."""
_MERGE_BYTES = 1024 * 1024
_MOST_AT_ONCE = 1024 * 1024 * 1024
"""Columns of text have 32-bit offsets: two gigabytes of it would not fit one batch."""
_Batch = Any


def with_position(batch: _Batch, positions: Any) -> _Batch:
    """The batch with one more column, at its end."""
    schema = batch.schema.remove_metadata().append(pa.field(POSITION, pa.int64()))
    return pa.RecordBatch.from_arrays([*batch.columns, positions], schema=schema)


def without_position(batch: _Batch, schema: pa.Schema) -> _Batch:
    """The columns of the plan."""
    return pa.RecordBatch.from_arrays(batch.columns[:-1], schema=schema)


def sorted_batch(batches: Sequence[_Batch], columns: Sequence[str]) -> _Batch:
    """All rows in one batch, ordered by the columns with nulls last, then by position."""
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return whole.take(sort_order(whole, columns))


def sort_order(batch: _Batch, columns: Sequence[str]) -> Any:
    """The indices that bring rows into order."""
    keys = [orderable_column(batch, column) for column in columns]
    keys.append(batch.column(batch.num_columns - 1))
    names = [str(index) for index in range(len(keys))]
    order = [(name, "ascending", "at_end") for name in names]
    return pc.sort_indices(pa.table(keys, names), order)


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted run: a stretch of a spill file."""

    path: str
    offset: int

    def batches(self) -> Iterator[_Batch]:
        """The rows, a few at a time."""
        with pa.OSFile(self.path) as handle:
            handle.seek(self.offset)
            with pa.ipc.open_stream(handle) as reader:
                yield from reader


class RangeBuckets:
    """One bucket per output; safe to fill from several threads."""

    def __init__(
        self, outputs: int, columns: Sequence[str], memory_bytes: int, folder: str
    ) -> None:
        self._columns = columns
        self._limit = min(memory_bytes, _MOST_AT_ONCE)
        self._folder = folder
        self._waiting: list[list[_Batch]] = [[] for _ in range(outputs)]
        self._runs: list[list[_Run]] = [[] for _ in range(outputs)]
        self._rows = [0] * outputs
        self._bytes = [0] * outputs
        self._size = 0
        self._lock = Lock()

    def add(self, output: int, batch: _Batch) -> None:
        """Put rows into a bucket; spills everything when memory is full."""
        with self._lock:
            self._waiting[output].append(batch)
            self._rows[output] += batch.num_rows
            self._bytes[output] += batch.nbytes
            self._size += batch.nbytes
            if self._size <= self._limit:
                return
            full, self._waiting = self._waiting, [[] for _ in self._waiting]
            self._size = 0
            # Others wait: what they bring meanwhile would not be in the budget.
            self._spill(full)

    def rows(self, output: int) -> int:
        """How many rows a bucket has got."""
        return self._rows[output]

    def drain(self, output: int, memory_bytes: int) -> Iterator[_Batch]:
        """The rows of a bucket in their order; what was in memory is let go of."""
        waiting, self._waiting[output] = self._waiting[output], []
        runs = self._runs[output]
        if self._bytes[output] <= min(memory_bytes, _MOST_AT_ONCE) or not runs:
            waiting = [*(batch for run in runs for batch in run.batches()), *waiting]
            if waiting:
                yield sorted_batch(waiting, self._columns)
            return
        in_memory = [iter([sorted_batch(waiting, self._columns)])] if waiting else []
        yield from merge_runs([*(run.batches() for run in runs), *in_memory], self._columns)

    def _spill(self, buckets: list[list[_Batch]]) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".run", delete=False) as file:
            path = file.name
        with pa.OSFile(path, "wb") as handle:
            for output, batches in enumerate(buckets):
                if not batches:
                    continue
                run = sorted_batch(batches, self._columns)
                batches.clear()
                self._runs[output].append(_Run(path, handle.tell()))
                with pa.ipc.new_stream(handle, run.schema) as writer:
                    rows = max(1, _MERGE_BYTES * run.num_rows // max(1, run.nbytes))
                    for start in range(0, run.num_rows, rows):
                        writer.write_batch(run.slice(start, rows))


def merge_runs(runs: Iterable[Iterator[_Batch]], columns: Sequence[str]) -> Iterator[_Batch]:
    """Merge sorted runs with one batch of each in memory.

    What is in memory is sorted together; all rows up to the first that is the last known one of its
    run are final, since nothing that is still to come can go before them.
    """
    heads = [head for head in (_Head.of(run) for run in runs) if head is not None]
    while heads:
        whole = pa.concat_batches([head.batch for head in heads])
        if len(heads) == 1 and heads[0].is_last:
            yield whole
            return
        order = sort_order(whole, columns)
        ends, total = [], 0
        for head in heads:
            total += head.batch.num_rows
            if not head.is_last:
                ends.append(total - 1)
        where = pc.index_in(pa.array(ends, pa.uint64()), order) if ends else None
        final = total if where is None else pc.min(where).as_py() + 1
        yield whole.take(order.slice(0, final))
        heads = _advanced(heads, order.slice(0, final))


@dataclass(slots=True)
class _Head:
    """The part of a run that is in memory, and the rest."""

    batch: _Batch
    ahead: _Batch | None
    rest: Iterator[_Batch]

    @classmethod
    def of(cls, run: Iterator[_Batch]) -> "_Head | None":
        first = next(run, None)
        return None if first is None else cls(first, next(run, None), run)

    @property
    def is_last(self) -> bool:
        """Whether all that is left is in memory."""
        return self.ahead is None

    def after(self, count: int) -> "_Head | None":
        """What remains when so many rows are gone."""
        left = self.batch.slice(count)
        if left.num_rows:
            return _Head(left, self.ahead, self.rest)
        if self.ahead is None:
            return None
        return _Head(self.ahead, next(self.rest, None), self.rest)


def _advanced(heads: list[_Head], taken: Any) -> list[_Head]:
    """The heads without the rows that were given out: of each run, its first ones."""
    counts = [0] * len(heads)
    bounds = [0]
    for head in heads:
        bounds.append(bounds[-1] + head.batch.num_rows)
    indices = taken.to_numpy()
    for number in range(len(heads)):
        inside = (indices >= bounds[number]) & (indices < bounds[number + 1])
        counts[number] = int(inside.sum())
    after = (head.after(count) for head, count in zip(heads, counts, strict=True))
    return [head for head in after if head is not None]
