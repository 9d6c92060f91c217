"""What runs on executors when one group is clustered by many tasks: count, split, write.

Rows travel as blocks of Arrow data, each for one output, so every type arrives as it left: Spark
moves blocks between machines and never looks inside.
"""

import io
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from maintenance_assets.engines.cluster_kernel import (
    Portion,
    cells_of_file,
    clustering_of,
    count_within,
    gathered,
    split_files,
    write_output,
)
from maintenance_assets.engines.dictionaries import check_dictionaries
from maintenance_assets.engines.protocol import RewriteTask
from maintenance_assets.engines.range_buckets import RangeBuckets, joined
from maintenance_assets.engines.spark_kernel import ExecutorAccess, Kernel, describe, unpack
from maintenance_assets.engines.spill_folders import spill_folder
from maintenance_assets.errors import in_words
from maintenance_assets.planning.clustering import Cuts, StretchCounter, Stretches

COUNTS = pa.schema(
    [
        ("file", pa.int32()),
        ("cells", pa.binary()),
        ("counts", pa.binary()),
        ("error", pa.string()),
        ("missing", pa.string()),
    ]
)
COUNTS_DDL = "file int, cells binary, counts binary, error string, missing string"
BLOCKS = pa.schema(
    [
        ("output", pa.int32()),
        ("block", pa.binary()),
        ("error", pa.string()),
        ("missing", pa.string()),
    ]
)
BLOCKS_DDL = "output int, block binary, error string, missing string"
WRITTEN = pa.schema(
    [
        ("output", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("statistics", pa.string()),
        ("error", pa.string()),
        ("missing", pa.string()),
    ]
)
WRITTEN_DDL = (
    "output int, path string, rows bigint, bytes bigint, statistics string, error string, "
    "missing string"
)
_MOST_BLOCK_BYTES = 4 * 1024 * 1024
"""Spark puts blocks into batches of 64 MiB: several of them should fit."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a shuffled group is told; it travels inside the kernels."""

    task: bytes
    store: bytes
    gate: str | None
    memory_bytes: int

    def open(self) -> tuple[RewriteTask, ExecutorAccess]:
        """The group and the store."""
        access = ExecutorAccess(pickle.loads(self.store), self.gate)
        access.fs.invalidate_cache()  # a worker process is used again, and so is its file system
        return unpack(self.task), access

    @property
    def batch_bytes(self) -> int:
        """Decoded bytes of one batch."""
        return max(1, self.memory_bytes // 16)


def stretch_kernel(job: Job) -> Kernel:
    """Files in, how many of their rows each stretch of the curve has out."""

    def count(numbers: Any) -> Iterator[Row]:
        task, access = job.open()
        group, files = task.group, task.group.files
        counter = StretchCounter(clustering_of(group).cell_bits, len(group.output_rows))
        for number in numbers:
            for cells in gathered(cells_of_file(files[number], group, access, job.batch_bytes)):
                counter.add(cells)
        stretches, counts = counter.counts()
        yield {"file": -1, "cells": stretches.tobytes(), "counts": counts.tobytes()}

    return _over_payloads(count, COUNTS)


def count_kernel(job: Job, stretches: Stretches) -> Kernel:
    """Files in, their cells and counts out, as far as the stretches want to know them."""

    def count(numbers: Any) -> Iterator[Row]:
        task, access = job.open()
        for number in numbers:
            cells = cells_of_file(task.group.files[number], task.group, access, job.batch_bytes)
            found = count_within(stretches, cells)
            counts = found.counts.astype(np.int64).tobytes()
            yield {"file": number, "cells": found.cells.tobytes(), "counts": counts}

    return _over_payloads(count, COUNTS)


def split_kernel(job: Job, cuts: Cuts) -> Kernel:
    """Files in, with what lies before them; blocks of rows out, each for one output."""

    def split(portion: Any) -> Iterator[Row]:
        task, access = job.open()
        waiting = _Blocks(min(job.memory_bytes // 2, _MOST_BLOCK_BYTES * len(task.staged)))
        files = [Portion(number, starts) for number, starts in portion]
        for output, part in split_files(task.group, files, access, job.batch_bytes, cuts):
            yield from waiting.add(output, part)
        yield from waiting.flush()

    return _over_payloads(split, BLOCKS)


class _Blocks:
    """Rows for each output, given out as blocks when there are enough of them."""

    def __init__(self, memory_bytes: int) -> None:
        self._limit = memory_bytes
        self._size = 0
        self._parts: defaultdict[int, list[Any]] = defaultdict(list)

    def add(self, output: int, part: pa.RecordBatch) -> Iterator[Row]:
        self._parts[output].append(part)
        self._size += part.nbytes
        if self._size > self._limit:
            yield from self.flush()

    def flush(self) -> Iterator[Row]:
        for output, parts in sorted(self._parts.items()):
            whole = joined(parts)
            rows = max(1, _MOST_BLOCK_BYTES * whole.num_rows // max(1, whole.nbytes))
            for start in range(0, whole.num_rows, rows):
                yield {"output": output, "block": _block(whole.slice(start, rows))}
        self._parts.clear()
        self._size = 0


def _block(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def write_kernel(job: Job) -> Kernel:
    """All blocks of an output in, one row about the file out."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield pa.RecordBatch.from_pylist(list(_write(batches, job)), WRITTEN)
        except Exception as error:
            # Not only what the kernels foresee: each store's library has errors of its own.
            failed = {"output": -1, "error": in_words(error)}
            yield pa.RecordBatch.from_pylist([failed], WRITTEN)

    return write


def _write(batches: Iterator[pa.RecordBatch], job: Job) -> Iterator[Row]:
    task, access = job.open()
    columns = clustering_of(task.group).columns
    with spill_folder("shuffle") as folder:
        buckets: dict[int, RangeBuckets] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if row["error"] is not None or row["missing"] is not None:
                    yield {"output": -1, "error": row["error"], "missing": row["missing"]}
                    return
                bucket = buckets.setdefault(
                    row["output"], RangeBuckets(1, columns, job.memory_bytes // 2, folder)
                )
                for part in pa.ipc.open_stream(row["block"]):
                    bucket.add(0, part)
        for output, bucket in buckets.items():
            yield _write_one(task, output, bucket, access, job.memory_bytes // 2)


def _write_one(
    task: RewriteTask, output: int, bucket: RangeBuckets, access: ExecutorAccess, memory: int
) -> Row:
    # Another attempt may be writing the same output at this moment.
    path = f"{task.staged[output]}.{uuid4().hex}"
    write_output(task.group, bucket, 0, (path, task.group.output_rows[output]), access, memory)
    check_dictionaries(task.group, [path], access)
    return {"output": output, **describe(path, access)}


def _over_payloads(work: Callable[[Any], Iterator[Row]], schema: pa.Schema) -> Kernel:
    """A kernel over pickled payloads; what goes wrong is a row: Spark need not try it again."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload"):
                for row in _reported(work, payload.as_py()):
                    # The first column says where a row goes; an error may go anywhere.
                    yield pa.RecordBatch.from_pylist([{schema.names[0]: 0, **row}], schema)

    return run


def _reported(work: Callable[[Any], Iterator[Row]], payload: bytes) -> Iterator[Row]:
    try:
        yield from work(pickle.loads(payload))
    except (ImportError, AttributeError, TypeError) as error:
        # A library is not there, or is of another version than the driver's.
        yield {"missing": f"{type(error).__name__}: {error}"}
    except Exception as error:
        # Not only what the kernels foresee: each store's library has errors of its own.
        yield {"error": in_words(error)}
