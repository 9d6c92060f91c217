"""Repartition in the words of the guide."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.operations.repartition import repartition
from maintenance_assets.operations.repartition_estimate import estimate_repartition


class Repartitioner:
    """Writes a dataset anew, into directories named by the values of other columns.

    With `target_dir` equal to `source_dir`, the old files are replaced in one step.
    """

    def __init__(
        self,
        source_dir: str | os.PathLike[str],
        target_dir: str | os.PathLike[str],
        new_partition_cols: Sequence[str],
        compression: str | None = "zstd",
        batch_size: int = 1_000_000,
        engine: str | Engine = "pyarrow",
        *,
        derived: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source_dir
        self._target = target_dir
        self._columns = new_partition_cols
        self._compression = compression
        self._batch_size = batch_size
        self._engine = engine
        self._derived = derived
        self._filesystem = filesystem
        self._storage_options = storage_options

    def estimate_size(self) -> dict[str, Any]:
        """What it would make: `num_partitions`, `total_rows`, `avg_rows_per_partition`,
        `estimated_size_mb`, `partition_cols`."""
        return estimate_repartition(
            self._source,
            self._columns,
            derived=self._derived,
            compression=self._compression,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        ).to_dict()

    def repartition(
        self,
        delete_source: bool = False,
        validate: bool = True,
        dry_run: bool = False,
        transform_fn: Callable[[Any], Any] | None = None,
    ) -> dict[str, Any]:
        """Write all rows into their new directories; returns the figures.

        `partitions_created`, `files_read`, `files_written`, `rows_read`, `rows_written`,
        `bytes_before`, `bytes_after`, `dry_run`, and `errors`, which is 0: what goes wrong is
        raised, and then neither source nor target has changed.
        """
        return repartition(
            self._source,
            self._target,
            self._columns,
            engine=self._engine,
            derived=self._derived,
            transform_fn=transform_fn,
            compression=self._compression,
            batch_rows=self._batch_size,
            validate=validate,
            delete_source=delete_source,
            dry_run=dry_run,
            filesystem=self._filesystem,
            storage_options=self._storage_options,
        ).to_dict()
