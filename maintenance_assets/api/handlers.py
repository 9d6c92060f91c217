"""The seeds' handler classes: the same operations, bound to an engine and a store."""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.engines.registry import get_engine
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.optimize import optimize


class _ParquetHandler:
    """Maintains datasets with one engine; a context manager."""

    def __init__(
        self, engine: Engine, storage_options: Mapping[str, Any] | None, filesystem: Any
    ) -> None:
        if storage_options and filesystem is not None:
            raise ValueError("give filesystem or storage_options, not both")
        self._engine = engine
        self._storage_options = storage_options
        self._filesystem = filesystem

    def compact_parquet_dataset(
        self,
        path: str | os.PathLike[str],
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        partition_filter: Any = None,
        compression: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Compact a dataset; returns the canonical stats."""
        return compact(
            path,
            engine=self._engine,
            target_mb_per_file=target_mb_per_file,
            target_rows_per_file=target_rows_per_file,
            partition_filter=partition_filter,
            compression=compression,
            dry_run=dry_run,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        ).to_dict()

    def optimize_parquet_dataset(
        self,
        path: str | os.PathLike[str],
        zorder_columns: Sequence[str],
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        partition_filter: Any = None,
        compression: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Cluster a dataset by columns; returns the canonical stats."""
        return optimize(
            path,
            zorder_columns,
            engine=self._engine,
            target_mb_per_file=target_mb_per_file,
            target_rows_per_file=target_rows_per_file,
            partition_filter=partition_filter,
            compression=compression,
            dry_run=dry_run,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        ).to_dict()

    def close(self) -> None:
        """Let go of what the handler itself started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class DuckDBParquetHandler(_ParquetHandler):
    """Maintenance executed by DuckDB."""

    def __init__(
        self, storage_options: Mapping[str, Any] | None = None, filesystem: Any = None
    ) -> None:
        super().__init__(get_engine("duckdb"), storage_options, filesystem)


class SparkParquetHandler(_ParquetHandler):
    """Maintenance executed by Spark: the given session, else the active one, else a local one."""

    def __init__(
        self,
        spark: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> None:
        from maintenance_assets.engines.spark_engine import SparkEngine

        self._spark_engine = SparkEngine(spark)
        super().__init__(self._spark_engine, storage_options, filesystem)

    def close(self) -> None:
        """Stop the session if this handler had to start it."""
        self._spark_engine.close()
