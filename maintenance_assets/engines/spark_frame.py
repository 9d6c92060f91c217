"""Rows of a Spark DataFrame become Parquet files where they are: they never come to the driver."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.engines.conform import conform_new
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.spark_engine import gate_at, tasks_at_once
from maintenance_assets.engines.spark_failures import redacted, secret_values
from maintenance_assets.engines.spark_jobs import run_job
from maintenance_assets.engines.spark_kernel import (
    ExecutorAccess,
    Kernel,
    compressed,
    decompressed,
)
from maintenance_assets.errors import RewriteError, SchemaMismatchError
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.planning.placement import partition_directories

_RESULTS = pa.schema(
    [
        ("path", pa.string()),
        ("directory", pa.string()),
        ("misfit", pa.string()),
        ("error", pa.string()),
        ("missing", pa.string()),
    ]
)
_RESULTS_DDL = "path string, directory string, misfit string, error string, missing string"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FrameTask:
    """How rows are written: columns and types, directories, encoding, sizes."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    options: WriterOptions
    target: CompactionPolicy
    row_group_rows: int | None


@dataclass(frozen=True, slots=True)
class FrameFile:
    """A file that an executor wrote, and the directory its rows belong into."""

    path: str
    directory: str


@dataclass(frozen=True, slots=True)
class _Job:
    """What every task is told; it travels inside the kernel."""

    task: bytes
    store: bytes
    gate: str | None
    folder: str
    memory_bytes: int


def write_on_executors(
    frame: Any, task: FrameTask, access: FileAccess, folder: str, memory_bytes: int, workers: int
) -> list[FrameFile]:
    """Write all rows into files in a folder.

    SchemaMismatchError where a value does not fit; RewriteError where Spark or the store fails.
    """
    spark = frame.sparkSession
    secrets = secret_values(access.fs, [folder])
    with gate_at([folder], access) as gate:
        memory = max(1, memory_bytes // tasks_at_once(spark, workers))
        job = _Job(compressed(task), pickle.dumps(access), gate, folder, memory)
        kernel = frame_kernel(job)
        rows = run_job(spark, lambda: frame.mapInArrow(kernel, _RESULTS_DDL), secrets)
    for row in rows:
        if row["misfit"] is not None:
            raise SchemaMismatchError(row["misfit"])
        if row["error"] is not None:
            raise RewriteError(redacted(row["error"], secrets))
    return [FrameFile(row["path"], row["directory"]) for row in rows]


def frame_kernel(job: _Job) -> Kernel:
    """The rows of a task in, one row about each file out."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(_reported(batches, job), _RESULTS)

    return write


def _reported(batches: Iterator[pa.RecordBatch], job: _Job) -> list[Row]:
    """What goes wrong is a row: Spark need not try it again."""
    try:
        task, store = decompressed(job.task), pickle.loads(job.store)
    except (ImportError, AttributeError, TypeError) as error:
        # A library is not there, or is of another version than the driver's.
        return [{"missing": f"{type(error).__name__}: {error}"}]
    try:
        return _write(batches, job, task, ExecutorAccess(store, job.gate))
    except SchemaMismatchError as error:
        return [{"misfit": str(error)}]
    except Exception as error:
        # Not only what the kernels foresee: each store's library has errors of its own.
        return [{"error": f"{type(error).__name__}: {error}"}]


def _write(
    batches: Iterator[pa.RecordBatch], job: _Job, task: FrameTask, access: ExecutorAccess
) -> list[Row]:
    with PartitionWriter(
        task.schema,
        task.options,
        lambda directory: f"{job.folder}/{uuid4().hex}.staged",
        access,
        job.memory_bytes,
        task.target,
        row_group_rows=task.row_group_rows,
    ) as writer:
        for batch in batches:
            rows = conform_new(batch, task.schema)
            codes, directories = partition_directories(rows, task.partition_by)
            writer.write(rows, codes, directories)
        placed = writer.close()
    return [{"path": file.path, "directory": file.directory} for file in placed]
