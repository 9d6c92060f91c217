"""Rows gathered by output, spilled to disk as sorted runs when memory runs out, and merged."""

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.orderable import orderable_column

POSITION = "__maintenance_position"
"""Where a row was: makes the order of equal rows the same on every engine and at every run."""
_MOST_SLICE, _LEAST_SLICE = 1024 * 1024, 128 * 1024
"""Bytes of a run that are in memory at once."""
_SLICES_IN_MEMORY = 64
_MOST_RUNS = 32
"""Runs that are merged at once, whatever memory there is: each is an open file."""
_MOST_AT_ONCE = 1024 * 1024 * 1024
"""Columns of text have 32-bit offsets: two gigabytes of it would not fit one batch."""
_Batch = Any


def with_position(batch: _Batch, positions: Any) -> _Batch:
    """The batch with one more column, at its end."""
    schema = batch.schema.remove_metadata().append(pa.field(POSITION, pa.int64()))
    return pa.RecordBatch.from_arrays([*batch.columns, positions], schema=schema)


def joined(batches: Sequence[_Batch]) -> _Batch:
    """All rows in one batch."""
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        narrow = [f.name for f in batches[0].schema if _is_narrow(f.type)]
        if not narrow:
            raise
        raise RewriteError(
            "together the files have more distinct values than the dictionary index of "
            f"{', '.join(narrow)} can count ({error}). Write that column with a wider index."
        ) from error


def _is_narrow(type_: Any) -> bool:
    return bool(pa.types.is_dictionary(type_) and type_.index_type.bit_width < 32)


def without_position(batch: _Batch, schema: pa.Schema) -> _Batch:
    """The columns of the plan."""
    return pa.RecordBatch.from_arrays(batch.columns[:-1], schema=schema)


def sorted_slices(
    batches: list[_Batch], columns: Sequence[str], slice_bytes: int
) -> Iterator[_Batch]:
    """All rows, ordered by the columns with nulls last, then by position; empties the list."""
    whole = joined(batches)
    batches.clear()
    order = sort_order(whole, columns)
    rows = max(1, slice_bytes * whole.num_rows // max(1, whole.nbytes))
    for start in range(0, whole.num_rows, rows):
        yield whole.take(order.slice(start, rows))


def sort_keys(batch: _Batch, columns: Sequence[str]) -> list[Any]:
    """What rows with a position are ordered by: the columns in plain form, then the position."""
    # A column of the dataset may have the name that the position has.
    plain = without_position(batch, pa.schema(list(batch.schema)[:-1]))
    return [*(orderable_column(plain, c) for c in columns), batch.column(batch.num_columns - 1)]


def sort_order(batch: _Batch, columns: Sequence[str]) -> Any:
    """The indices that bring rows into order."""
    keys = sort_keys(batch, columns)
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


@dataclass(frozen=True, slots=True)
class _File:
    """A spill file that is being written."""

    path: str
    handle: Any


class RangeBuckets:
    """One bucket per output; safe to fill from several threads."""

    def __init__(
        self, outputs: int, columns: Sequence[str], memory_bytes: int, folder: str
    ) -> None:
        self._columns = columns
        self._limit = min(memory_bytes, _MOST_AT_ONCE)
        self._slice_bytes = min(_MOST_SLICE, max(_LEAST_SLICE, memory_bytes // _SLICES_IN_MEMORY))
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
        runs, self._runs[output] = self._runs[output], []
        if self._bytes[output] <= min(memory_bytes, _MOST_AT_ONCE):
            waiting = [*(batch for run in runs for batch in run.batches()), *waiting]
            runs = []
        slices = sorted_slices(waiting, self._columns, self._slice_bytes) if waiting else iter(())
        if not runs:
            yield from slices
            return
        few = self._merged_to_few(runs, memory_bytes)
        yield from merge_runs([*(run.batches() for run in few), slices], self._columns)

    def _merged_to_few(self, runs: list[_Run], memory_bytes: int) -> list[_Run]:
        """As many runs as can be open at once; each has two slices in memory."""
        most = max(2, min(_MOST_RUNS, memory_bytes // (2 * self._slice_bytes)))
        while len(runs) > most:
            count = min(most, len(runs) - most + 1)
            first = [run.batches() for run in runs[:count]]
            with self._new_file() as handle:
                merged = self._write(handle, merge_runs(first, self._columns))
            runs = [*runs[count:], merged]
        return runs

    def _spill(self, buckets: list[list[_Batch]]) -> None:
        with self._new_file() as handle:
            for output, batches in enumerate(buckets):
                if batches:
                    slices = sorted_slices(batches, self._columns, self._slice_bytes)
                    self._runs[output].append(self._write(handle, slices))

    @contextmanager
    def _new_file(self) -> Iterator[_File]:
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".run", delete=False) as file:
            path = file.name
        with pa.OSFile(path, "wb") as handle:
            yield _File(path, handle)

    def _write(self, file: _File, batches: Iterator[_Batch]) -> _Run:
        run = _Run(file.path, file.handle.tell())
        first = next(batches)
        with pa.ipc.new_stream(file.handle, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
        return run


def merge_runs(runs: Iterable[Iterator[_Batch]], columns: Sequence[str]) -> Iterator[_Batch]:
    """Merge sorted runs with two batches of each in memory.

    All rows up to the first that is the last known one of its run are final: nothing that is
    still to come can go before them. Only these are sorted, so every row is sorted once.
    """
    heads = [head for head in (_Head.of(run, columns) for run in runs) if head is not None]
    while heads:
        ends = [head.key(-1) for head in heads if head.ahead is not None]
        parts = [head.take(min(ends, default=None)) for head in heads]
        final = [part for part in parts if part.num_rows]
        whole = joined(final)
        yield whole if len(final) == 1 else whole.take(sort_order(whole, columns))
        heads = [head for head in heads if head.goes_on()]


_Key = tuple[tuple[Any, ...], ...]


@dataclass(slots=True)
class _Head:
    """The part of a run that is in memory, and the rest."""

    columns: Sequence[str]
    batch: _Batch
    keys: list[Any]
    ahead: _Batch | None
    rest: Iterator[_Batch]

    @classmethod
    def of(cls, run: Iterator[_Batch], columns: Sequence[str]) -> "_Head | None":
        first = next(run, None)
        if first is None:
            return None
        return cls(columns, first, sort_keys(first, columns), next(run, None), run)

    def key(self, index: int) -> _Key:
        """The key of a row, as something that Python compares."""
        return tuple(_comparable(values[index].as_py()) for values in self.keys)

    def take(self, bound: _Key | None) -> _Batch:
        """The rows up to a key, or all; they are gone then."""
        count = self.batch.num_rows if bound is None else self._count(bound)
        taken, self.batch = self.batch.slice(0, count), self.batch.slice(count)
        self.keys = [values.slice(count) for values in self.keys]
        return taken

    def _count(self, bound: _Key) -> int:
        """How many rows are not behind a key."""
        low, high = 0, self.batch.num_rows
        first = self.keys[0]
        if not first.null_count and pa.types.is_integer(first.type) and bound[0][0] == 0:
            numbers = first.to_numpy()
            value = numbers.dtype.type(bound[0][1])
            low, high = (int(numbers.searchsorted(value, side)) for side in ("left", "right"))
        return low + bisect_right(range(low, high), bound, key=self.key)

    def goes_on(self) -> bool:
        """Whether there are more rows; the next ones are fetched when these are gone."""
        if not self.batch.num_rows and self.ahead is not None:
            self.batch, self.ahead = self.ahead, next(self.rest, None)
            self.keys = sort_keys(self.batch, self.columns)
        return bool(self.batch.num_rows)


def _comparable(value: Any) -> tuple[Any, ...]:
    """Numbers and bytes in their order, NaN behind them, null at the end."""
    if value is None:
        return (2,)
    return (1,) if value != value else (0, value)
