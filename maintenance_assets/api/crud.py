"""Changing rows of a dataset, in the words of the guide."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.operations.delete import delete
from maintenance_assets.operations.restore import restore
from maintenance_assets.operations.update import update
from maintenance_assets.operations.upsert import upsert
from maintenance_assets.planning.upsert import OnDuplicates


class ParquetCRUD:
    """Delete, update and upsert rows of one dataset; what is replaced is kept in `backup_dir`."""

    def __init__(
        self,
        dataset_dir: str | os.PathLike[str],
        compression: str | None = "zstd",
        backup_dir: str | os.PathLike[str] | None = None,
        engine: str | Engine = "pyarrow",
        *,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = dataset_dir
        self._compression = compression
        self._backup_dir = backup_dir
        self._engine = engine
        self._filesystem = filesystem
        self._storage_options = storage_options

    def delete(
        self,
        filter_expr: Any,
        partition_filter: Any = None,
        dry_run: bool = False,
        create_backup: bool = True,
    ) -> dict[str, Any]:
        """Delete the rows for which `filter_expr` is true; returns the figures."""
        return delete(
            self._path,
            filter_expr,
            partition_filter=partition_filter,
            **self._options(dry_run, create_backup),
        ).to_dict()

    def update(
        self,
        filter_expr: Any,
        update_expr: Mapping[str, Any],
        partition_filter: Any = None,
        dry_run: bool = False,
        create_backup: bool = True,
    ) -> dict[str, Any]:
        """Give the rows for which `filter_expr` is true new values; returns the figures."""
        return update(
            self._path,
            filter_expr,
            update_expr,
            partition_filter=partition_filter,
            **self._options(dry_run, create_backup),
        ).to_dict()

    def upsert(
        self,
        new_data: Any,
        key_cols: Sequence[str],
        partition_cols: Sequence[str] | None = None,
        update_cols: Sequence[str] | None = None,
        dry_run: bool = False,
        create_backup: bool = True,
        on_duplicates: OnDuplicates = "error",
    ) -> dict[str, Any]:
        """Update rows whose keys exist and insert the others; returns the figures."""
        return upsert(
            self._path,
            new_data,
            key_cols,
            partition_cols=partition_cols,
            update_cols=update_cols,
            on_duplicates=on_duplicates,
            **self._options(dry_run, create_backup),
        ).to_dict()

    def restore(self, backup_id: str, dry_run: bool = False) -> dict[str, Any]:
        """Take back the operation that returned this `backup_id`; returns the figures."""
        if self._backup_dir is None:
            raise ValueError("restore needs backup_dir: give it to ParquetCRUD")
        return restore(
            self._path,
            backup_id,
            backup_path=self._backup_dir,
            dry_run=dry_run,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        ).to_dict()

    def _options(self, dry_run: bool, create_backup: bool) -> dict[str, Any]:
        return {
            "engine": self._engine,
            "compression": self._compression,
            "backup_path": self._backup_dir if create_backup else None,
            "dry_run": dry_run,
            "filesystem": self._filesystem,
            "storage_options": self._storage_options,
        }
