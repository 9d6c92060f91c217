"""Statistics, compaction and clustering executed by PyArrow."""

import os
from collections.abc import Sequence
from typing import Any

from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.optimize import optimize
from maintenance_assets.planning.partitions import parse_partition_filter
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import open_store


def collect_dataset_stats_pyarrow(
    path: str | os.PathLike[str], filesystem: Any = None, partition_filter: Any = None
) -> dict[str, Any]:
    """Files, bytes and rows of a dataset, from the listing and the footers."""
    chosen = parse_partition_filter(partition_filter)
    snapshot = discover(open_store(path, filesystem), chosen)
    return {
        "files": [
            {"path": file.path, "size_bytes": file.size_bytes, "num_rows": file.num_rows}
            for file in snapshot.files
        ],
        "total_bytes": snapshot.total_bytes,
        "total_rows": snapshot.total_rows,
    }


def compact_parquet_dataset_pyarrow(
    path: str | os.PathLike[str],
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Any = None,
    compression: str | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
) -> dict[str, Any]:
    """Compact a dataset with PyArrow; returns the canonical stats."""
    return compact(
        path,
        engine="pyarrow",
        target_mb_per_file=target_mb_per_file,
        target_rows_per_file=target_rows_per_file,
        partition_filter=partition_filter,
        compression=compression,
        dry_run=dry_run,
        filesystem=filesystem,
    ).to_dict()


def optimize_parquet_dataset_pyarrow(
    path: str | os.PathLike[str],
    zorder_columns: Sequence[str],
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Any = None,
    compression: str | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
) -> dict[str, Any]:
    """Cluster a dataset by columns with PyArrow; returns the canonical stats."""
    return optimize(
        path,
        zorder_columns,
        engine="pyarrow",
        target_mb_per_file=target_mb_per_file,
        target_rows_per_file=target_rows_per_file,
        partition_filter=partition_filter,
        compression=compression,
        dry_run=dry_run,
        filesystem=filesystem,
    ).to_dict()
