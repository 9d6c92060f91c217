"""Compaction in the words of the guide."""

import os
from collections.abc import Mapping
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.operations.compact_partitions import compact_partitions


class ParquetCompactor:
    """Merges the small files of one dataset, partition by partition."""

    def __init__(
        self,
        dataset_dir: str | os.PathLike[str],
        target_file_size_mb: float = 100,
        compression: str | None = "zstd",
        engine: str | Engine = "pyarrow",
        *,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = dataset_dir
        self._target_file_size_mb = target_file_size_mb
        self._compression = compression
        self._engine = engine
        self._filesystem = filesystem
        self._storage_options = storage_options

    def compact(
        self,
        min_file_count: int = 2,
        max_file_size_mb: float | None = None,
        delete_source_files: bool = True,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Merge files of partitions with at least `min_file_count` of up to `max_file_size_mb`.

        Without `delete_source_files`, what is replaced stays readable in a folder beside the
        dataset (`originals`). `errors` counts what was left because other writers changed it
        meanwhile; whatever else goes wrong is raised.
        """
        done = compact_partitions(
            self._path,
            min_file_count=min_file_count,
            max_file_size_mb=max_file_size_mb,
            keep_originals=not delete_source_files,
            engine=self._engine,
            target_mb_per_file=self._target_file_size_mb,
            compression=self._compression,
            dry_run=dry_run,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        )
        stats = done.result.stats
        figures = {
            "files_before": stats.before_file_count,
            "files_after": stats.after_file_count,
            "bytes_before": stats.before_total_bytes,
            "bytes_after": stats.after_total_bytes,
            "partitions_compacted": done.partitions,
            "errors": len(done.result.conflicts) + (len(done.result.failures) if dry_run else 0),
            "dry_run": dry_run,
        }
        return {**figures, "originals": list(done.originals)} if done.originals else figures
