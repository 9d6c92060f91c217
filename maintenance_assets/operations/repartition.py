"""Repartition: the same rows in other directories."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maintenance_assets.engines.protocol import Engine, Resources
from maintenance_assets.model.policy import (
    DEFAULT_MEMORY_BUDGET_MB,
    CompactionPolicy,
    memory_budget_bytes,
    worker_count,
)
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.engine_choice import requested_engine
from maintenance_assets.operations.repartition_plan import Request
from maintenance_assets.operations.repartition_run import RepartitionRun
from maintenance_assets.operations.results import RepartitionResult
from maintenance_assets.planning.repartitioning import check_names
from maintenance_assets.planning.values import derived_columns
from maintenance_assets.storage.filesystems import open_store


def repartition(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    partition_by: Sequence[str],
    *,
    engine: str | Engine = "pyarrow",
    derived: Mapping[str, Any] | None = None,
    transform_fn: Callable[[Any], Any] | None = None,
    keep_partition_columns: bool = True,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    compression: str | None = "zstd",
    batch_rows: int = 1_000_000,
    validate: bool = True,
    delete_source: bool = False,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> RepartitionResult:
    """Write the rows of a dataset into directories named by the values of other columns.

    Partition columns come from the data, from the old paths (a column that only they have becomes
    text), from `derived` (`{"hour": "hour(ts)"}`) or from `transform_fn`, which gets and returns a
    polars.DataFrame, batch by batch. Nothing is visible until all is written, read again and found
    to be the same; with `target` equal to `source` the old files go at that moment.
    """
    started = time.monotonic()
    request = check_request(
        partition_by,
        derived=derived,
        transform_fn=transform_fn,
        keep_partition_columns=keep_partition_columns,
        policy=CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file, compression),
        batch_rows=batch_rows,
        validate=validate,
        delete_source=delete_source,
    )
    if on_progress is not None and not callable(on_progress):
        raise ValueError(f"on_progress must be callable, got {on_progress!r}")
    run = RepartitionRun(
        request,
        open_store(source, filesystem, storage_options),
        open_store(target, filesystem, storage_options),
        requested_engine(engine),
        Resources(
            memory_budget_bytes(memory_budget_mb),
            worker_count(max_workers, os.cpu_count() or 1),
            strict,
        ),
        on_progress,
    )
    result = run.preview() if dry_run else run.execute()
    return replace(result, seconds=time.monotonic() - started)


def check_request(
    partition_by: Sequence[str],
    *,
    derived: Mapping[str, Any] | None,
    transform_fn: Callable[[Any], Any] | None,
    keep_partition_columns: bool,
    policy: CompactionPolicy,
    batch_rows: int,
    validate: bool,
    delete_source: bool,
) -> Request:
    """Check what a repartition takes; nothing is read yet."""
    if transform_fn is not None and not callable(transform_fn):
        raise ValueError(f"transform_fn must be callable, got {transform_fn!r}")
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows <= 0:
        raise ValueError(f"batch_rows must be a whole number > 0, got {batch_rows!r}")
    if delete_source and not validate:
        raise ValueError("delete_source needs validate=True: the source is the only other copy")
    return Request(
        partition_by=check_names(partition_by),
        derived=derived_columns(derived or {}),
        transform=transform_fn,
        keep=bool(keep_partition_columns),
        policy=policy,
        batch_rows=batch_rows,
        validate=bool(validate),
        delete_source=bool(delete_source),
    )
