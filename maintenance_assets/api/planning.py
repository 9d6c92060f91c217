"""Planning as plain functions over file descriptors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from maintenance_assets.model.files import FileInfo, UntouchedFile
from maintenance_assets.model.plans import CompactionGroup
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.operations.optimize import check_names
from maintenance_assets.planning.compaction import group_output_rows, plan_groups, predict_stats
from maintenance_assets.planning.optimization import check_columns, optimize_groups


def plan_compaction_groups(
    file_infos: Iterable[FileInfo | Mapping[str, Any]],
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
) -> dict[str, Any]:
    """Group files for compaction; takes FileInfo or the dicts of collect_dataset_stats_pyarrow.

    Keys: `groups` (CompactionGroup), `untouched_files` (each with a `reason`), `planned_stats`
    (MaintenanceStats) and `planned_groups` (lists of paths).
    """
    policy = CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file)
    files = [_file_info(info) for info in file_infos]
    _refuse_repeats(files)
    chosen, untouched = plan_groups(files, policy)
    groups = [CompactionGroup(group, group_output_rows(group, policy)) for group in chosen]
    return {
        "groups": groups,
        "untouched_files": untouched,
        "planned_stats": predict_stats(files, groups, codec=None),
        "planned_groups": [group.file_paths() for group in groups],
    }


def plan_optimize_groups(
    file_infos: Iterable[FileInfo | Mapping[str, Any]],
    zorder_columns: Sequence[str],
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    sample_schema: pa.Schema | None = None,
) -> dict[str, Any]:
    """Group files for clustering: all of a partition together; keys as of compaction.

    Columns are checked where a schema is given. Which of the files are clustered already only
    `optimize(..., dry_run=True)` can tell, for it reads them.
    """
    columns = check_names(zorder_columns)
    policy = CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file)
    if sample_schema is not None:
        check_columns([sample_schema], columns)
    files = [_file_info(info) for info in file_infos]
    _refuse_repeats(files)
    members = optimize_groups(files)
    groups = [
        CompactionGroup(group, group_output_rows(group, policy))
        for group in members
        if any(file.num_rows for file in group)
    ]
    stats = predict_stats(files, groups, codec=None)
    grouped = {file.path for group in groups for file in group.files}
    return {
        "groups": groups,
        "untouched_files": [
            UntouchedFile(f.path, f.size_bytes, f.num_rows, "empty")
            for f in files
            if f.path not in grouped
        ],
        "planned_stats": replace(stats, zorder_columns=list(columns)),
        "planned_groups": [group.file_paths() for group in groups],
    }


def _file_info(info: FileInfo | Mapping[str, Any]) -> FileInfo:
    if isinstance(info, FileInfo):
        return info
    try:
        return FileInfo(str(info["path"]), int(info["size_bytes"]), int(info["num_rows"]))
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(
            f"a file needs path, size_bytes and num_rows (FileInfo or dict), got {info!r}"
        ) from error


def _refuse_repeats(files: list[FileInfo]) -> None:
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise ValueError(f"'{file.path}' is given twice")
        seen.add(file.path)
