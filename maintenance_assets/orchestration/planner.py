"""The planner resource: discovery, health and plans. It never touches an engine."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

import dagster

from maintenance_assets.model.health import DatasetHealth, PartitionHealth
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.orchestration.catalog_look import CatalogLook
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.looks import DatasetLook, DirectoryLook
from maintenance_assets.planning.health import Entry, measure_dataset, measure_partition
from maintenance_assets.storage.filesystems import Listed, Store


class MaintenancePlanner(dagster.ConfigurableResource):  # type: ignore[type-arg]
    """Looks at datasets and says what maintenance would do."""

    def store(self, dataset: DatasetConfig) -> Store:
        """The file system and root of a plain dataset."""
        return DirectoryLook(dataset).store

    def partitions(
        self, dataset: DatasetConfig, after: str | None = None
    ) -> Iterator[PartitionHealth]:
        """The health of each partition, one after the other, from listings alone."""
        return _measured(dataset, after)

    def health_of(self, dataset: DatasetConfig, partition: str | None = None) -> DatasetHealth:
        """The health of a dataset, or of one of its partitions without what lies below it."""
        if partition is None:
            return measure_dataset(_measured(dataset))
        below = _measured(dataset, below=partition)
        # The directory itself comes first, if there are data files in it.
        return measure_dataset(part for part in islice(below, 1) if not part.partition)

    def partitions_in(self, dataset: DatasetConfig, directory: str) -> list[str]:
        """The partition that a directory is, else those below it; none where no data file lies."""
        if directory and not _is_clean(directory):
            return []
        below = look_at(dataset).partitions(below=directory)
        first = next(below, None)
        if first is None:
            return []
        if not first[0]:  # it has files of its own: what lies below has other names
            return [directory]
        return [f"{directory}/{name}" for name, _ in chain([first], below)] if directory else []

    def partition_columns(self, dataset: DatasetConfig) -> list[str]:
        """The hive columns, as far as the dataset shows them."""
        return look_at(dataset).partition_columns()

    def busy(self, dataset: DatasetConfig) -> str | None:
        """Who is maintaining the dataset right now, in words."""
        return look_at(dataset).busy()

    def plan(self, dataset: DatasetConfig) -> CompactionPlan:
        """What compaction would do, exactly: footers are read, of files that are new to us."""
        return look_at(dataset).plan()

    def in_need(self, dataset: DatasetConfig) -> dict[str, int]:
        """Files that compaction would save, by partition, where it is worth a run."""
        if not any(part.gain >= dataset.min_gain for part in self.partitions(dataset)):
            return {}
        # A listing knows neither rows nor what we wrote ourselves: the plan has the last word.
        saved: Counter[str] = Counter()
        plan = self.plan(dataset)
        for group in plan.groups:
            partition = group.directory[len(plan.root) :].strip("/")
            saved[partition] += len(group.files) - len(group.output_rows)
        return {name: gain for name, gain in saved.items() if gain >= dataset.min_gain}

    def leftovers(self, dataset: DatasetConfig) -> tuple[str, ...]:
        """Runs that were interrupted and that nobody is working on."""
        return look_at(dataset).leftovers()


def look_at(dataset: DatasetConfig) -> DatasetLook:
    """The way to look at a dataset."""
    return DirectoryLook(dataset) if dataset.catalog is None else CatalogLook(dataset)


def _measured(
    dataset: DatasetConfig, after: str | None = None, below: str = ""
) -> Iterator[PartitionHealth]:
    for directory, files in look_at(dataset).partitions(after, below):
        yield measure_partition(directory, _entries(files), dataset.health_policy)


def _entries(files: list[Listed]) -> list[Entry]:
    return [(f.path, f.size_bytes, f.version, f.modified_at) for f in files]


def _is_clean(directory: str) -> bool:
    """A directory below the root, and none that is hidden from readers."""
    return all(segment and not segment.startswith(("_", ".")) for segment in directory.split("/"))
