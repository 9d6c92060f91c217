"""What a repartition would make of a dataset: partitions, files, bytes."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from maintenance_assets.engines.partition_survey import count_rows
from maintenance_assets.engines.protocol import Resources
from maintenance_assets.engines.repartition_task import RepartitionTask
from maintenance_assets.engines.size_sample import estimated_directories, written_size
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.policy import (
    DEFAULT_MEMORY_BUDGET_MB,
    MIB,
    CompactionPolicy,
    memory_budget_bytes,
    worker_count,
)
from maintenance_assets.model.repartition import SizeEstimate
from maintenance_assets.operations.repartition_plan import Request, plan_repartition
from maintenance_assets.planning.packing import Load, output_count
from maintenance_assets.planning.repartitioning import check_names
from maintenance_assets.planning.values import derived_columns
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import Store, open_store

MOST_COUNTED_ROWS = 64 * 1024 * 1024
"""Up to so many rows, the partition columns of all are read; above, those of some files."""


def estimate_repartition(
    source: str | os.PathLike[str],
    partition_by: Sequence[str],
    *,
    derived: Mapping[str, Any] | None = None,
    keep_partition_columns: bool = True,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    compression: str | None = "zstd",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
) -> SizeEstimate:
    """Count partitions by reading their columns, and bytes by writing a sample into memory."""
    policy = CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file, compression)
    request = Request(
        partition_by=check_names(partition_by),
        derived=derived_columns(derived or {}),
        transform=None,
        keep=keep_partition_columns,
        policy=policy,
        batch_rows=MOST_COUNTED_ROWS,
        validate=False,
        delete_source=False,
    )
    resources = Resources(
        memory_budget_bytes(memory_budget_mb), worker_count(max_workers, os.cpu_count() or 1)
    )
    store = open_store(source, filesystem, storage_options)
    task = plan_repartition(request, discover(store), store, "").task
    return _estimate(task, store, resources)


def _estimate(task: RepartitionTask, store: Store, resources: Resources) -> SizeEstimate:
    chosen = _some_files(task.files, MOST_COUNTED_ROWS)
    seen = replace(task, files=chosen)
    counts = count_rows(seen, store, resources.memory_bytes, resources.workers, lambda rows: None)
    is_exact = len(chosen) == len(task.files)
    partitions = len(counts)
    if not is_exact:
        share = seen.total_rows / task.total_rows
        partitions = estimated_directories(list(counts.values()), share)
    rows_each = task.total_rows / max(1, partitions)
    size = written_size(task, store, resources.memory_bytes, max(1, round(rows_each)))
    data = size.data_bytes * task.total_rows // max(1, size.rows)
    files = _file_count(counts, data, task, partitions)
    return SizeEstimate(
        num_partitions=partitions,
        total_rows=task.total_rows,
        avg_rows_per_partition=rows_each,
        estimated_size_mb=(data + files * size.footer_bytes) / MIB,
        partition_cols=task.partition_by,
        num_files=files,
        is_exact=is_exact,
    )


def _some_files(files: tuple[DataFile, ...], most_rows: int) -> tuple[DataFile, ...]:
    """All files, or some from everywhere among them."""
    total = sum(file.num_rows for file in files)
    if total <= most_rows:
        return files
    step = -(-total // most_rows)
    return files[::step]


def _file_count(counts: Counter[str], data: int, task: RepartitionTask, partitions: int) -> int:
    """As many as the rows of each partition fill, about."""
    seen = max(1, counts.total())
    files = sum(
        output_count(Load(data * rows // seen, task.total_rows * rows // seen), task.target)
        for rows in counts.values()
    )
    return max(1, files * partitions // max(1, len(counts)))
