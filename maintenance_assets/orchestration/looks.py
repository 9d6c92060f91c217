"""Where the files of a dataset are looked up: a plain directory here, a catalog's next door."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from maintenance_assets.errors import LeaseHeldError, UnsupportedDatasetError
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.storage.discovery import refuse_adopted
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.footer_cache import FooterCache
from maintenance_assets.storage.lease import live_holders
from maintenance_assets.storage.partition_listing import Partition, iter_partitions
from maintenance_assets.storage.recovery import leftover_runs

_FOOTERS = FooterCache()
"""Of the whole process: a code server looks at the same datasets again and again."""


class DatasetLook(Protocol):
    """What there is to know of one dataset without an engine."""

    def partitions(self, after: str | None = None, below: str = "") -> Iterator[Partition]:
        """Each directory with data files, as seen from `below`, in a fixed order."""
        ...

    def partition_columns(self) -> list[str]:
        """The hive columns."""
        ...

    def plan(self) -> CompactionPlan:
        """What compaction would do; FileNotFoundError where there is no file."""
        ...

    def busy(self) -> str | None:
        """Who is maintaining the dataset right now, in words."""
        ...

    def leftovers(self) -> tuple[str, ...]:
        """Runs that were interrupted and that nobody is working on."""
        ...


@dataclass(frozen=True, slots=True)
class DirectoryLook:
    """A look at a plain directory."""

    dataset: DatasetConfig

    @property
    def store(self) -> Store:
        """The dataset's file system and root."""
        options = self.dataset.storage_options or None
        return open_store(self.dataset.directory, storage_options=options)

    def partitions(self, after: str | None = None, below: str = "") -> Iterator[Partition]:
        """As listings have them, each made when its turn comes."""
        store = self.store
        return iter_partitions(replace(store, root=store.path(below)) if below else store, after)

    def partition_columns(self) -> list[str]:
        """Those of the first partition that a listing finds."""
        for directory, _ in self.partitions():
            if directory:  # files in the root itself say nothing about partitions
                return hive_columns(directory)
        return []

    def plan(self) -> CompactionPlan:
        """From all footers, of which those that are known are not read again."""
        options = json.dumps(self.dataset.storage_options, sort_keys=True, default=str)
        place = self.dataset.directory, options
        snapshot = _FOOTERS.discover(place, self.store, time.time())
        return plan_compaction(snapshot, policy_of(self.dataset))

    def busy(self) -> str | None:
        """From the leases in the directory, which may have been adopted by a catalog, too."""
        store = self.store
        try:
            refuse_adopted(store)
            holders = live_holders(store)
        except (LeaseHeldError, UnsupportedDatasetError) as error:  # or a lease that is unreadable
            return str(error)
        return f"being maintained already: {holders[0].describe()}" if holders else None

    def leftovers(self) -> tuple[str, ...]:
        """From the journals in the directory."""
        store = self.store
        return () if live_holders(store) else leftover_runs(store)


def hive_columns(directory: str) -> list[str]:
    """The names in a partition path."""
    pairs = [segment.partition("=") for segment in directory.split("/")]
    return [name for name, equals, _ in pairs if equals]


def policy_of(dataset: DatasetConfig) -> CompactionPolicy:
    """How the files of a dataset should look."""
    targets = dataset.target_mb_per_file, dataset.target_rows_per_file
    return CompactionPolicy.from_targets(*targets, dataset.compression)
