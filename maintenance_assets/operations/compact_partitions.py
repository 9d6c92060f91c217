"""Compaction of the partitions that have enough small files; the originals can be kept aside."""

import os
import posixpath
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.files import DataFile, Snapshot, UntouchedFile
from maintenance_assets.model.plans import CompactionGroup, CompactionPlan
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB, MIB, CompactionPolicy
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.operations.rewrite import failure_message, open_run
from maintenance_assets.planning.compaction import plan_compaction, predict_stats
from maintenance_assets.storage.backups import write_backup
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import GroupEntry


@dataclass(frozen=True, slots=True)
class PartitionCompaction:
    """What a compaction did, and where the files are that it replaced."""

    result: CompactionResult
    partitions: int
    """Directories in which files were merged."""
    originals: tuple[str, ...] = ()
    """Folders with the replaced files, where these were to be kept."""


def compact_partitions(
    path: str | os.PathLike[str],
    *,
    min_file_count: int = 2,
    max_file_size_mb: float | None = None,
    keep_originals: bool = False,
    engine: str | Engine = "pyarrow",
    target_mb_per_file: float | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> PartitionCompaction:
    """Compact partitions with at least `min_file_count` files of up to `max_file_size_mb`.

    With `keep_originals`, the replaced files stay readable beside the dataset, never inside it:
    there, every reader would see their rows twice.
    """
    started = time.monotonic()
    planner = _Selection(
        CompactionPolicy.from_targets(target_mb_per_file, None, compression),
        _file_count(min_file_count),
        _file_size(max_file_size_mb),
        max_passes=1 if keep_originals else 3,
    )
    run = open_run(
        planner,
        path,
        engine=engine,
        partition_filter=None,
        filesystem=filesystem,
        storage_options=storage_options,
        memory_budget_mb=memory_budget_mb,
        max_workers=max_workers,
        strict=strict,
        on_progress=on_progress,
    )
    originals = _Originals(run.store) if keep_originals else None
    if originals is not None:
        run.before_publish = originals.keep
    result = run.preview() if dry_run else run.execute()
    result = replace(result, seconds=time.monotonic() - started)
    if result.failures and not dry_run:
        raise IncompleteMaintenanceError(failure_message(result), result)
    rewritten = result.plan.groups if dry_run else ()
    directories = {group.directory for group in rewritten}
    directories |= {file.directory for file in run.inputs.values()}
    kept = () if originals is None else tuple(originals.folders)
    return PartitionCompaction(result, len(directories), kept)


def _file_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"min_file_count must be a whole number >= 1, got {value!r}")
    return value


def _file_size(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"max_file_size_mb must be > 0 and a number, got {value!r}")
    return int(value * MIB) if value < 2**40 else None


@dataclass(frozen=True, slots=True)
class _Selection:
    policy: CompactionPolicy
    min_file_count: int
    max_file_bytes: int | None
    max_passes: int
    operation: str = "compact"
    prefix: str = "compact"
    ranges_of: tuple[str, ...] = ()

    def plan(self, snapshot: Snapshot, store: Store, report: ProgressCallback) -> CompactionPlan:
        """Bin-pack the files that are small enough, where there are enough of them."""
        fitting = [file for file in snapshot.files if self._is_small(file)]
        counts = Counter(file.directory for file in fitting)
        chosen = [file for file in fitting if counts[file.directory] >= self.min_file_count]
        plan = plan_compaction(replace(snapshot, files=tuple(chosen)), self.policy)
        paths = {file.path for file in chosen}
        left = [
            UntouchedFile(file.path, file.size_bytes, file.num_rows, "not_selected")
            for file in snapshot.files
            if file.path not in paths
        ]
        groups = [CompactionGroup(group.files, group.output_rows) for group in plan.groups]
        predicted = predict_stats(snapshot.files, groups, plan.predicted.compression_codec)
        untouched = tuple(sorted((*plan.untouched, *left), key=lambda file: file.path))
        return replace(plan, untouched=untouched, predicted=predicted)

    def _is_small(self, file: DataFile) -> bool:
        return self.max_file_bytes is None or file.size_bytes <= self.max_file_bytes


class _Originals:
    """Keeps what a compaction replaces, in a folder beside the dataset."""

    def __init__(self, store: Store) -> None:
        parent, name = posixpath.split(store.root)
        if not parent.strip("/"):
            raise ValueError(
                f"'{store.shown}' has no directory above it in which its original files could be "
                "kept. Copy them yourself, or let them be deleted (delete_source_files=True)"
            )
        # Hidden, for the directory above may be part of a dataset as well.
        root = f"{parent}/_{name}_originals"
        self._backup = Store(store.fs, root, store.url(root))
        self._store = store
        self.folders: list[str] = []

    def keep(self, run_id: str, groups: Sequence[GroupEntry]) -> None:
        """Called right before the files lose their names."""
        inputs = [entry for group in groups for entry in group.inputs]
        outputs = [entry for group in groups for entry in group.outputs]
        write_backup(self._backup, self._store, run_id, "compact", inputs, outputs)
        self.folders.append(self._backup.url(f"{self._backup.root}/{run_id}/data"))
