"""Repartition on DuckDB: it sorts by directory, and spills; our kernels read and write.

COPY ... PARTITION_BY would lose the order of rows, the size of files, metadata and some types.
Columns go in under names of our own, so that only values have to survive.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.duckdb_capability import sort_obstacle
from maintenance_assets.engines.in_order import in_order
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import Places
from maintenance_assets.engines.read_again import Inspector, written_parts
from maintenance_assets.engines.read_kernel import MAX_BATCH_ROWS
from maintenance_assets.engines.repartition_kernel import (
    Tally,
    portion_rows,
    reader_count,
)
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
)
from maintenance_assets.engines.row_blocks import Arranged
from maintenance_assets.engines.row_flow import RowFlow, portions
from maintenance_assets.model.plans import RewriteGroup

_FINISH_ROWS = 1024 * 1024
"""Directories are written together when they have so many rows: then all threads have work."""


def repartition_obstacle(task: RepartitionTask) -> str | None:
    """Why rows cannot pass through DuckDB without loss; None when they can."""
    group = RewriteGroup("", task.files, (), task.schema, task.writer)
    return sort_obstacle(group)


def repartition_by_sorting(
    task: RepartitionTask,
    places: Places,
    cursor: duckdb.DuckDBPyConnection,
    memory_bytes: int,
    workers: int,
    report: Report,
) -> RepartitionOutcome:
    """Write the rows from one stream that is sorted by directory."""
    tally = Tally()
    names: list[str] = []
    batches = _Stream(_numbered(task, places, memory_bytes, workers, tally, names, report))
    with PartitionWriter(
        task.schema,
        task.writer,
        task.stage,
        places.target,
        max(1, memory_bytes // 2),
        task.target,
        workers=workers,
        inspect=Inspector.of(task, places.target, memory_bytes, workers),
    ) as writer:
        first = next(batches, None)
        if first is not None:
            try:
                _write_sorted(cursor, first, batches, writer, task.schema, names)
            except duckdb.Error:
                batches.raise_error()
                raise
        parts = written_parts(writer)
    return tally.outcome("duckdb", task, parts)


class _Stream(Iterator[pa.RecordBatch]):
    """Batches for DuckDB, which would turn every error of theirs into one of its own."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: BaseException | None = None

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise

    def raise_error(self) -> None:
        """Raise what ended the stream, if anything did."""
        if self._error is not None:
            raise self._error


def _numbered(
    task: RepartitionTask,
    places: Places,
    memory_bytes: int,
    workers: int,
    tally: Tally,
    names: list[str],
    report: Report,
) -> Iterator[pa.RecordBatch]:
    """All rows with the number of their directory and their place."""
    flow = RowFlow(task, places.source, memory_bytes // (12 * (workers + 1)))
    numbers: dict[str, int] = {}
    readers = reader_count(task, memory_bytes, workers)
    found = in_order(flow.placed, portions(task.files, portion_rows(task, workers)), readers)
    row = 0
    for placed in found:
        tally.add(placed)
        arranged = placed.arranged
        for directory, _, _ in arranged.stretches:
            if directory not in numbers:
                numbers[directory] = len(numbers)
                names.append(directory)
        counts = [rows for _, _, rows in arranged.stretches]
        here = [numbers[directory] for directory, _, _ in arranged.stretches]
        rows = arranged.batch.num_rows
        yield _renamed(
            [
                *arranged.batch.columns,
                pa.array(np.repeat(np.array(here, np.int32), counts)),
                pa.array(np.arange(row, row + rows)),
            ]
        )
        row += rows
        report(tally.rows_read)


def _renamed(arrays: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])


def _write_sorted(
    cursor: duckdb.DuckDBPyConnection,
    first: pa.RecordBatch,
    batches: Iterator[pa.RecordBatch],
    writer: PartitionWriter,
    schema: pa.Schema,
    names: list[str],
) -> None:
    columns = len(schema)
    stream = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    cursor.register("unsorted", stream)
    selected = ", ".join(f"c{index}" for index in range(columns + 1))
    order = f"c{columns}, c{columns + 1}"
    reader = cursor.sql(f"SELECT {selected} FROM unsorted ORDER BY {order}").to_arrow_reader(
        MAX_BATCH_ROWS
    )
    try:
        _write_stream(reader, writer, schema, names)
    finally:
        reader.close()  # an undrained reader blocks its connection


def _write_stream(
    reader: pa.RecordBatchReader, writer: PartitionWriter, schema: pa.Schema, names: list[str]
) -> None:
    """Rows of a directory come together: it is done when the next one begins."""
    waiting: list[str] = []
    rows = 0
    for batch in reader:
        arranged = _arranged(batch, schema, names)
        writer.add(arranged)
        rows += batch.num_rows
        here = [directory for directory, _, _ in arranged.stretches]
        waiting += [directory for directory in here if directory not in waiting[-1:]]
        if rows >= _FINISH_ROWS:
            writer.finish(waiting[:-1])
            waiting, rows = waiting[-1:], 0


def _arranged(batch: pa.RecordBatch, schema: pa.Schema, names: list[str]) -> Arranged:
    """The columns of the plan, as they were before DuckDB had them."""
    numbers = batch.column(len(schema)).to_numpy()
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])).tolist()
    ends = [*begins[1:], len(numbers)]
    plain = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema.names)
    stretches = tuple(
        (names[numbers[begin]], begin, end - begin) for begin, end in zip(begins, ends, strict=True)
    )
    return Arranged(conform_batch(plain, schema, "the rows"), stretches)
