"""Clustering on DuckDB: it sorts, and spills what does not fit; our kernels read and write.

Columns go in under names of our own, and the sort keys as columns of their own in plain form:
DuckDB may rebuild a column that it sorted by from the sort key, and that would change the bits of
-0.0 and NaN.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from maintenance_assets.engines.cluster_kernel import (
    CellCounter,
    Cells,
    Pool,
    Portion,
    Room,
    clustering_of,
    routed_batches,
)
from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.protocol import FileAccess, RewriteTask
from maintenance_assets.engines.range_buckets import sort_keys, without_position
from maintenance_assets.engines.read_kernel import MAX_BATCH_ROWS
from maintenance_assets.engines.spill_folders import spill_folder
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.clustering import Cuts, Starts
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES


def cluster_by_sorting(
    task: RewriteTask,
    access: FileAccess,
    cursor: duckdb.DuckDBPyConnection,
    memory_bytes: int,
    workers: int,
) -> None:
    """Write the outputs of a group from one sorted stream."""
    group = task.group
    batch_bytes = max(1, memory_bytes // (16 * workers))
    with spill_folder("cells") as folder:
        pool, counter = Pool(workers), CellCounter(group, access, batch_bytes, folder)
        cells = pool.map(lambda n: counter.count(n, Room(0)), range(len(group.files)))
        cuts, starts = counter.cut(cells, pool)
        given, returned = _Positions(), _Positions()
        unsorted = _routed(group, access, batch_bytes, cuts, starts, cells, given)
        reader = _sorted(cursor, group, unsorted)
        try:
            write_files(
                (_restored(batch, group, returned) for batch in reader),
                group.schema,
                list(zip(task.staged, group.output_rows, strict=True)),
                group.writer,
                access,
                row_group_bytes=min(ROW_GROUP_BYTES, max(1, memory_bytes // 4)),
                row_group_rows=clustering_of(group).row_group_rows,
            )
            returned.require(given)
        finally:
            reader.close()  # an undrained reader blocks its connection


def _routed(
    group: RewriteGroup,
    access: FileAccess,
    batch_bytes: int,
    cuts: Cuts,
    starts: list[Starts],
    cells: Sequence[Cells],
    given: "_Positions",
) -> Iterator[pa.RecordBatch]:
    """All rows with their position, output and sort keys."""
    for number, (start, path) in enumerate(zip(starts, cells, strict=True)):
        portion = Portion(number, start, path)
        for batch, outputs in routed_batches(group, portion, access, batch_bytes, cuts):
            *keys, positions = sort_keys(batch, clustering_of(group).columns)
            given.add(positions)
            yield _renamed([*batch.columns, pa.array(outputs), *keys])


def _renamed(arrays: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])


def _sorted(
    cursor: duckdb.DuckDBPyConnection, group: RewriteGroup, unsorted: Iterator[pa.RecordBatch]
) -> pa.RecordBatchReader:
    columns = len(group.schema)
    keys = range(columns + 2, columns + 2 + len(clustering_of(group).columns))
    order = ", ".join(f"c{key} ASC NULLS LAST" for key in keys)
    selected = ", ".join(f"c{index}" for index in range(columns + 1))
    first = next(unsorted)
    stream = pa.RecordBatchReader.from_batches(first.schema, chain([first], unsorted))
    cursor.register("unsorted", stream)
    return cursor.sql(
        f"SELECT {selected} FROM unsorted ORDER BY c{columns + 1}, {order}, c{columns}"
    ).to_arrow_reader(MAX_BATCH_ROWS)


def _restored(batch: pa.RecordBatch, group: RewriteGroup, returned: "_Positions") -> pa.RecordBatch:
    """The columns of the plan, as they were before DuckDB had them."""
    returned.add(batch.column(batch.num_columns - 1))
    names = [*group.schema.names, "position"]
    named = pa.RecordBatch.from_arrays(batch.columns, names)
    plain = without_position(named, pa.schema(list(named.schema)[:-1]))
    return conform_batch(plain, group.schema, "the group")


class _Positions:
    """A sum over the positions of rows: each one that went in has to come out."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, positions: Any) -> None:
        """Count rows; mixed up first, so that two errors do not make up for each other."""
        mixed = positions.to_numpy().astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        self._sum = (self._sum + int(mixed.sum(dtype=np.uint64))) % (1 << 64)

    def require(self, others: "_Positions") -> None:
        """Raise unless both saw the same rows."""
        if self._sum != others._sum:
            raise RewriteError("DuckDB did not give back the rows that it was given")
