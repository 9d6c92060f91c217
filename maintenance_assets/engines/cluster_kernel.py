"""Clustering in one process: count cells, cut the curve, gather rows by output, sort and write."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.dictionaries import OrderedCategories, with_own_values
from maintenance_assets.engines.protocol import FileAccess, RewriteTask
from maintenance_assets.engines.range_buckets import (
    RangeBuckets,
    joined,
    with_position,
    without_position,
)
from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.engines.sample_kernel import key_columns, key_schema, null_columns
from maintenance_assets.engines.spill_folders import spill_folder
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.clustering import Clustering
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.clustering import (
    CellCounts,
    Cuts,
    Router,
    Starts,
    StretchCounter,
    Stretches,
    cells_of,
    cells_of_values,
    cut,
    starts_of_files,
)
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from maintenance_assets.planning.dictionaries import has_nested_dictionary

T = TypeVar("T")
_COUNT_ROWS = 1024 * 1024
_SPLIT_ROWS = 128 * 1024
"""Rows that are split at a time: many small pieces would cost more than the rows in them."""
FILE_SHIFT = 40
"""A position is the number of the file and, in the lower bits, the row in it."""


def cluster_group(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int = 1
) -> None:
    """Write the outputs of a group whose rows are laid out anew."""
    group, clustering = task.group, clustering_of(task.group)
    with spill_folder("cluster") as folder:
        pool = Pool(workers)
        batch_bytes = max(1, memory_bytes // (16 * workers))
        counter = CellCounter(group, access, batch_bytes, folder)
        # What is kept moves into the buckets bit by bit: together they have half of the memory.
        room = Room(memory_bytes // 2 if group.decoded_bytes <= memory_bytes // 2 else 0)
        known = pool.map(lambda n: counter.count(n, room), range(len(group.files)))
        cuts, starts = counter.cut(known, pool)
        buckets = RangeBuckets(
            len(task.staged), clustering.columns, max(1, memory_bytes // 2), folder
        )
        categories = OrderedCategories(group.schema)
        portions = [Portion(n, starts[n], cells) for n, cells in enumerate(known)]
        portions.sort(key=lambda portion: isinstance(portion.cells, str))
        del known

        def split(worker: int) -> None:
            mine = portions[worker::workers]
            for output, part in split_files(group, mine, access, batch_bytes, cuts):
                categories.check(part)
                buckets.add(output, part)

        pool.map(split, range(workers))
        share = memory_bytes // (2 * workers)
        outputs = list(zip(task.staged, group.output_rows, strict=True))
        pool.map(
            lambda n: write_output(group, buckets, n, outputs[n], access, share),
            range(len(outputs)),
        )


def clustering_of(group: RewriteGroup) -> Clustering:
    """The clustering that a group has to have."""
    if group.clustering is None:
        raise ValueError("the group has no clustering")
    return group.clustering


Held = list[tuple[pa.RecordBatch, Any]]
"""All batches of a file with their cells."""
Cells = str | Held | None
"""Cells on disk, together with their rows, or not known yet."""


class Room:
    """Memory for the rows of whole files; closed for good once it did not suffice."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes
        self._lock = Lock()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more may be kept."""
        return self._left <= 0

    def take(self, size_bytes: int) -> bool:
        """Reserve memory; False when there is not enough."""
        with self._lock:
            self._left = self._left - size_bytes if self._left >= size_bytes else 0
            return self._left > 0


class CellCounter:
    """Counts the cells of a group of files; their cells stay with their rows, or on disk."""

    def __init__(
        self, group: RewriteGroup, access: FileAccess, batch_bytes: int, folder: str
    ) -> None:
        self._group = group
        self._access = access
        self._batch_bytes = batch_bytes
        self._folder = folder
        self._counter = StretchCounter(clustering_of(group).cell_bits, len(group.output_rows))
        self._lock = Lock()

    def count(self, number: int, room: Room) -> str | Held:
        """Read a file, with all its columns where its rows may be kept, and count its cells."""
        file = self._group.files[number]
        held = None if room.is_closed else self._hold(file, room)
        if held is not None:
            self._add(cells for _, cells in held)
            return held
        path = f"{self._folder}/{number}.cells"
        with open(path, "wb") as kept:
            cells = cells_of_file(file, self._group, self._access, self._batch_bytes)
            self._add(_written(cells, kept))
        return path

    def cut(self, known: Sequence[str | Held], pool: "Pool") -> tuple[Cuts, list[Starts]]:
        """Where outputs begin, and what each file needs to know about the files before it."""
        _, counts = self._counter.counts()
        if int(counts.sum()) != self._group.total_rows:
            raise RewriteError("the sources do not hold as many rows as their footers say")
        stretches = self._counter.stretches(self._group.output_rows)
        counted = pool.map(
            lambda n: count_within(stretches, _known_cells(known[n])), range(len(known))
        )
        cuts = cut(stretches, CellCounts.total(counted), self._group.output_rows)
        return cuts, starts_of_files(cuts, counted)

    def _hold(self, file: DataFile, room: Room) -> Held | None:
        """The rows of a file with their cells; None where they do not fit."""
        clustering, held = clustering_of(self._group), []
        for batch in read_file(file, self._group.schema, self._access, self._batch_bytes):
            cells = cells_of(clustering, batch)
            if not room.take(batch.nbytes + cells.nbytes):
                return None
            if batch.num_rows:
                held.append((batch, cells))
        return held

    def _add(self, parts: Iterable[Any]) -> None:
        for cells in gathered(parts):
            found, counts = self._counter.numbers(cells)
            with self._lock:
                self._counter.add_counts(found, counts)


def _written(parts: Iterator[Any], kept: Any) -> Iterator[Any]:
    """The same cells, once they are in a file."""
    for cells in parts:
        kept.write(cells.tobytes())
        yield cells


def count_within(stretches: Stretches, parts: Iterable[Any]) -> CellCounts:
    """Count the cells of a file, as far as the stretches want to know them."""
    return CellCounts.total([CellCounts.of(stretches.within(c)) for c in gathered(parts)])


def gathered(parts: Iterable[Any]) -> Iterator[Any]:
    """The same cells in larger arrays."""
    waiting: list[Any] = []
    for cells in parts:
        waiting.append(cells)
        if sum(map(len, waiting)) >= _COUNT_ROWS:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _known_cells(known: str | Held) -> Iterator[Any]:
    if isinstance(known, str):
        with open(known, "rb") as kept:
            while data := kept.read(4 * _COUNT_ROWS):
                yield np.frombuffer(data, np.uint32)
    else:
        yield from (cells for _, cells in known)


def cells_of_file(
    file: DataFile, group: RewriteGroup, access: FileAccess, batch_bytes: int
) -> Iterator[Any]:
    """The cells of all rows of a file, from its key columns alone."""
    clustering = clustering_of(group)
    columns = key_columns(file, clustering.columns)
    if columns:
        schema = key_schema(group.schema, clustering.columns)
        for batch in read_file(file, schema, access, batch_bytes, columns):
            yield cells_of(clustering, batch)
        return
    # Without any of the columns, all rows are null in all of them.
    cell = cells_of_values(clustering, null_columns(group.schema, clustering.columns, 1))
    for start in range(0, file.num_rows, _COUNT_ROWS):
        yield np.repeat(cell, min(_COUNT_ROWS, file.num_rows - start))


@dataclass(frozen=True, slots=True)
class Portion:
    """A file to split: its number, what lies before it, and its cells where they are known."""

    number: int
    starts: Starts
    cells: Cells = None


def split_files(
    group: RewriteGroup,
    portions: Sequence[Portion],
    access: FileAccess,
    batch_bytes: int,
    cuts: Cuts,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of some files by output, with their positions; small batches go together."""
    batches: list[pa.RecordBatch] = []
    outputs: list[Any] = []
    for portion in portions:
        for batch, routed in routed_batches(group, portion, access, batch_bytes, cuts):
            batches.append(batch)
            outputs.append(routed)
            full = sum(map(len, outputs)) >= _SPLIT_ROWS
            if full or sum(b.nbytes for b in batches) >= batch_bytes:
                yield from _split(batches, outputs)
                batches, outputs = [], []
    if batches:
        yield from _split(batches, outputs)


def _split(
    batches: Sequence[pa.RecordBatch], outputs: Sequence[Any]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    routed = np.concatenate(outputs)
    order = np.argsort(routed, kind="stable")
    ordered = routed[order]
    whole = joined(batches).take(pa.array(order))
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
        # Each part goes its own way, into blocks and runs: a large dictionary would go with all.
        yield int(ordered[begin]), with_own_values(whole.slice(begin, end - begin))


def routed_batches(
    group: RewriteGroup, portion: Portion, access: FileAccess, batch_bytes: int, cuts: Cuts
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Batches of a file with their positions, and the output of each row."""
    router = Router(cuts, portion.starts)
    file = group.files[portion.number]
    movable = movable_schema(group.schema)
    row = 0
    for batch, cells in _with_cells(group, portion, access, batch_bytes):
        if len(cells) != batch.num_rows:
            raise RewriteError(f"'{file.path}' was changed while it was read")
        first = (portion.number << FILE_SHIFT) + row
        positions = pa.array(np.arange(first, first + batch.num_rows))
        row += batch.num_rows
        moved = batch if movable is group.schema else conform_batch(batch, movable, file.path)
        yield with_position(moved, positions), router.route(cells)


def _with_cells(
    group: RewriteGroup, portion: Portion, access: FileAccess, batch_bytes: int
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    if isinstance(portion.cells, list):
        while portion.cells:  # each batch is let go of once it is split
            yield portion.cells.pop(0)
        return
    row = 0
    for batch in read_file(group.files[portion.number], group.schema, access, batch_bytes):
        if portion.cells is None:
            cells = cells_of(clustering_of(group), batch)
        else:
            cells = np.fromfile(portion.cells, np.uint32, batch.num_rows, offset=4 * row)
        row += batch.num_rows
        if batch.num_rows:
            yield batch, cells


def write_output(
    group: RewriteGroup,
    buckets: RangeBuckets,
    bucket: int,
    output: tuple[str, int],
    access: FileAccess,
    memory_bytes: int,
) -> None:
    """Write one output (path and rows) from its bucket, which must have exactly these rows."""
    if buckets.rows(bucket) != output[1]:
        raise RewriteError(f"an output got {buckets.rows(bucket)} rows instead of {output[1]}")
    # PyArrow cannot read a nested dictionary over several row groups: cut as late as possible.
    late = has_nested_dictionary(group.schema)
    write_files(
        (_unmoved(batch, group.schema) for batch in buckets.drain(bucket, memory_bytes)),
        group.schema,
        [output],
        group.writer,
        access,
        row_group_bytes=ROW_GROUP_BYTES
        if late
        else min(ROW_GROUP_BYTES, max(1, memory_bytes // 2)),
        row_group_rows=ROW_GROUP_ROWS if late else clustering_of(group).row_group_rows,
    )


def _unmoved(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the plan, as they were before they were moved."""
    movable = movable_schema(schema)
    plain = without_position(batch, movable)
    return plain if movable is schema else conform_batch(plain, schema, "the group")


def movable_schema(schema: pa.Schema) -> pa.Schema:
    """A schema whose rows PyArrow can reorder: it cannot move views, so those travel as values."""
    fields = [field.with_type(_movable(field.type)) for field in schema]
    moved = pa.schema(fields, schema.metadata)
    return schema if moved.equals(schema) else moved


def _movable(type_: Any) -> Any:
    if pa.types.is_string_view(type_):
        return pa.large_string()
    if pa.types.is_binary_view(type_):
        return pa.large_binary()
    if isinstance(type_, pa.BaseExtensionType) or pa.types.is_dictionary(type_):
        return type_
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_movable(f.type)) for f in type_])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(
            key.with_type(_movable(key.type)),
            item.with_type(_movable(item.type)),
            type_.keys_sorted,
        )
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_movable_item(type_), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(_movable_item(type_))
    return pa.list_(_movable_item(type_)) if pa.types.is_list(type_) else type_


def _movable_item(type_: Any) -> Any:
    return type_.value_field.with_type(_movable(type_.value_field.type))


class Pool:
    """Runs a step over all items, in threads where there are several workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def map(self, work: Callable[[int], T], items: Sequence[int]) -> list[T]:
        """All results in order; the first error ends the step, and nothing more is begun."""
        if self._workers == 1 or len(items) == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self._workers, thread_name_prefix="cluster") as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                return [future.result() for future in futures]
            finally:
                pool.shutdown(cancel_futures=True)
