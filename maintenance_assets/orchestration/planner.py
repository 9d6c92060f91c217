"""The planner resource: discovery, health and plans. It never touches an engine."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster

from maintenance_assets.model.health import DatasetHealth, PartitionHealth
from maintenance_assets.model.plans import GroupFailure
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.planning.health import Entry, measure_dataset, measure_partition
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.lease import live_holders
from maintenance_assets.storage.partition_listing import iter_partitions
from maintenance_assets.storage.publish import leftover_runs


class MaintenancePlanner(dagster.ConfigurableResource):  # type: ignore[type-arg]
    """Looks at datasets and says what maintenance would do."""

    def store(self, dataset: DatasetConfig) -> Store:
        """The dataset's file system and root."""
        return open_store(dataset.path, storage_options=dataset.storage_options or None)

    def partitions(
        self, dataset: DatasetConfig, after: str | None = None
    ) -> Iterator[PartitionHealth]:
        """The health of each partition, one after the other, from listings alone."""
        policy = dataset.health_policy
        for directory, files in iter_partitions(self.store(dataset), after):
            yield measure_partition(directory, _entries(files), policy)

    def health_of(self, dataset: DatasetConfig, partition: str | None = None) -> DatasetHealth:
        """The health of a dataset, or of one of its partitions."""
        store = self.store(dataset)
        if partition:
            store = replace(store, root=store.path(partition))
        parts = iter_partitions(store)
        return measure_dataset(
            measure_partition(directory, _entries(files), dataset.health_policy)
            for directory, files in parts
        )

    def has_partition(self, dataset: DatasetConfig, partition: str) -> bool:
        """Whether any data file lies in a partition."""
        clean = not partition.startswith("/") and ".." not in partition.split("/")
        return clean and self.health_of(dataset, partition).file_count > 0

    def partition_columns(self, dataset: DatasetConfig) -> list[str]:
        """The hive columns of the first partition that a listing finds."""
        for directory, _ in iter_partitions(self.store(dataset)):
            pairs = [segment.partition("=") for segment in directory.split("/")]
            return [name for name, equals, _ in pairs if equals]
        return []

    def busy(self, dataset: DatasetConfig) -> str | None:
        """Who is maintaining the dataset right now, in words."""
        holders = live_holders(self.store(dataset))
        return f"being maintained already: {holders[0].describe()}" if holders else None

    def preview(self, dataset: DatasetConfig, partition: str | None = None) -> CompactionResult:
        """A dry run: what compaction would do."""
        return compact(
            dataset.path,
            engine="pyarrow" if dataset.engine == "spark" else dataset.engine,
            dry_run=True,
            **compaction_arguments(dataset, partition),
        )

    def conflicts(self, dataset: DatasetConfig) -> tuple[GroupFailure, ...]:
        """Files of one partition whose schemas cannot be merged."""
        targets = dataset.target_mb_per_file, dataset.target_rows_per_file
        policy = CompactionPolicy.from_targets(*targets)
        return plan_compaction(discover(self.store(dataset)), policy).failures

    def leftovers(self, dataset: DatasetConfig) -> tuple[str, ...]:
        """Runs that were interrupted and that nobody is working on."""
        store = self.store(dataset)
        return () if live_holders(store) else leftover_runs(store)


def _entries(files: list[Listed]) -> list[Entry]:
    return [(f.path, f.size_bytes, f.version, f.modified_at) for f in files]


def compaction_arguments(dataset: DatasetConfig, partition: str | None) -> dict[str, Any]:
    """What a compaction of this dataset is told, whoever executes it."""
    return {
        "target_mb_per_file": dataset.target_mb_per_file,
        "target_rows_per_file": dataset.target_rows_per_file,
        "compression": dataset.compression,
        "partition_filter": partition or None,
        "storage_options": dataset.storage_options or None,
    }
