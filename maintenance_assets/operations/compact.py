"""Compaction: many small files become few good ones, and not a row changes."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB, CompactionPolicy, Mode
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.operations.rewrite import failure_message, open_run
from maintenance_assets.planning.compaction import plan_compaction, plan_rewrites
from maintenance_assets.storage.filesystems import Store, location

Files = tuple[DataFile, ...]


def compact(
    path: str | os.PathLike[str],
    *,
    engine: str | Engine = "pyarrow",
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Any = None,
    compression: str | None = None,
    mode: Mode = "auto",
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> CompactionResult:
    """Merge small files and split oversized ones, partition by partition.

    Healthy row groups are copied as they are and runs of small ones are encoded anew
    (`mode="auto"`); `"stitch"` decodes nothing and fails groups that would need it, `"encode"`
    encodes everything.

    Nothing is visible until all is written and verified. Groups that cannot be rewritten
    faithfully stay as they are, the others are committed, and IncompleteMaintenanceError
    (which carries the result) says which and why.
    """
    started = time.monotonic()
    policy = CompactionPolicy.from_targets(
        target_mb_per_file, target_rows_per_file, compression, mode
    )
    run = open_run(
        CompactionPlanner(policy),
        path,
        engine=engine,
        partition_filter=partition_filter,
        filesystem=filesystem,
        storage_options=storage_options,
        memory_budget_mb=memory_budget_mb,
        max_workers=max_workers,
        strict=strict,
        on_progress=on_progress,
    )
    result = run.preview() if dry_run else run.execute()
    result = replace(
        result,
        seconds=time.monotonic() - started,
        dataset=location(path, run.store),
        partition_filter=partition_filter,
    )
    if result.failures and not dry_run:
        raise IncompleteMaintenanceError(failure_message(result), result)
    return result


@dataclass(frozen=True, slots=True)
class CompactionPlanner:
    """Plans what compaction does."""

    policy: CompactionPolicy
    operation: str = "compact"
    prefix: str = "compact"
    max_passes: int = 3
    """Merged files compress better than planned and may fit together once more."""
    ranges_of: tuple[str, ...] = ()

    def plan(self, snapshot: Snapshot, store: Store, report: ProgressCallback) -> CompactionPlan:
        """Bin-pack what is small or oversized."""
        return plan_compaction(snapshot, self.policy)

    def replan(
        self, snapshot: Snapshot, groups: Sequence[Files], store: Store, report: ProgressCallback
    ) -> CompactionPlan:
        """The same for groups that were decided on before."""
        return plan_rewrites(snapshot, groups, (), self.policy)
