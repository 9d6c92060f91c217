"""The planner resource: discovery, health and plans. It never touches an engine."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import dagster

from maintenance_assets.errors import LeaseHeldError
from maintenance_assets.model.health import DatasetHealth, PartitionHealth
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.planning.health import Entry, measure_dataset, measure_partition
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.footer_cache import FooterCache
from maintenance_assets.storage.lease import live_holders
from maintenance_assets.storage.partition_listing import iter_partitions
from maintenance_assets.storage.recovery import leftover_runs

_FOOTERS = FooterCache()
"""Of the whole process: a code server looks at the same datasets again and again."""


class MaintenancePlanner(dagster.ConfigurableResource):  # type: ignore[type-arg]
    """Looks at datasets and says what maintenance would do."""

    def store(self, dataset: DatasetConfig) -> Store:
        """The dataset's file system and root."""
        return open_store(dataset.path, storage_options=dataset.storage_options or None)

    def partitions(
        self, dataset: DatasetConfig, after: str | None = None
    ) -> Iterator[PartitionHealth]:
        """The health of each partition, one after the other, from listings alone."""
        return _measured(self.store(dataset), dataset, after)

    def health_of(self, dataset: DatasetConfig, partition: str | None = None) -> DatasetHealth:
        """The health of a dataset, or of one of its partitions without what lies below it."""
        store = self.store(dataset)
        if partition is None:
            return measure_dataset(_measured(store, dataset))
        below = _measured(_at(store, partition), dataset)
        # The directory itself comes first, if there are data files in it.
        return measure_dataset(part for part in islice(below, 1) if not part.partition)

    def partitions_in(self, dataset: DatasetConfig, directory: str) -> list[str]:
        """The partition that a directory is, else those below it; none where no data file lies."""
        if directory and not _is_clean(directory):
            return []
        below = iter_partitions(_at(self.store(dataset), directory))
        first = next(below, None)
        if first is None:
            return []
        if not first[0]:  # it has files of its own: what lies below has other names
            return [directory]
        return [f"{directory}/{name}" for name, _ in chain([first], below)] if directory else []

    def partition_columns(self, dataset: DatasetConfig) -> list[str]:
        """The hive columns of the first partition that a listing finds."""
        for directory, _ in iter_partitions(self.store(dataset)):
            if directory:  # files in the root itself say nothing about partitions
                pairs = [segment.partition("=") for segment in directory.split("/")]
                return [name for name, equals, _ in pairs if equals]
        return []

    def busy(self, dataset: DatasetConfig) -> str | None:
        """Who is maintaining the dataset right now, in words."""
        try:
            holders = live_holders(self.store(dataset))
        except LeaseHeldError as error:  # a lease that cannot be read
            return str(error)
        return f"being maintained already: {holders[0].describe()}" if holders else None

    def plan(self, dataset: DatasetConfig) -> CompactionPlan:
        """What compaction would do, exactly: footers are read, of files that are new to us."""
        targets = dataset.target_mb_per_file, dataset.target_rows_per_file
        policy = CompactionPolicy.from_targets(*targets, dataset.compression)
        place = dataset.path, json.dumps(dataset.storage_options, sort_keys=True, default=str)
        snapshot = _FOOTERS.discover(place, self.store(dataset), time.time())
        return plan_compaction(snapshot, policy)

    def in_need(self, dataset: DatasetConfig) -> dict[str, int]:
        """Files that compaction would save, by partition, where it is worth a run."""
        if not any(part.gain >= dataset.min_gain for part in self.partitions(dataset)):
            return {}
        # A listing knows neither rows nor what we wrote ourselves: the plan has the last word.
        saved: Counter[str] = Counter()
        store = self.store(dataset)
        for group in self.plan(dataset).groups:
            saved[store.relative(group.directory)] += len(group.files) - len(group.output_rows)
        return {name: gain for name, gain in saved.items() if gain >= dataset.min_gain}

    def leftovers(self, dataset: DatasetConfig) -> tuple[str, ...]:
        """Runs that were interrupted and that nobody is working on."""
        store = self.store(dataset)
        return () if live_holders(store) else leftover_runs(store)


def _measured(
    store: Store, dataset: DatasetConfig, after: str | None = None
) -> Iterator[PartitionHealth]:
    for directory, files in iter_partitions(store, after):
        yield measure_partition(directory, _entries(files), dataset.health_policy)


def _entries(files: list[Listed]) -> list[Entry]:
    return [(f.path, f.size_bytes, f.version, f.modified_at) for f in files]


def _at(store: Store, directory: str) -> Store:
    return replace(store, root=store.path(directory)) if directory else store


def _is_clean(directory: str) -> bool:
    """A directory below the root, and none that is hidden from readers."""
    return all(segment and not segment.startswith(("_", ".")) for segment in directory.split("/"))
