"""Datasets of a catalog: opened by their declaration, and looked at without an engine.

The directories hold the files of all versions, so what counts is what the catalog says.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from maintenance_assets.api.lakehouse import LakeDataset, Lakehouse
from maintenance_assets.errors import CatalogError
from maintenance_assets.model.lakehouse import LiveFile, OpenTransaction
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.orchestration.catalog_config import CatalogConfig
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.looks import hive_columns
from maintenance_assets.storage.filesystems import Listed, open_store
from maintenance_assets.storage.partition_listing import Partition

_MAINTENANCE = ("compact", "optimize", "repartition")


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A declared dataset in its catalog, which is open."""

    house: Lakehouse
    lake: LakeDataset
    catalog: CatalogConfig


@contextmanager
def open_dataset(dataset: DatasetConfig) -> Iterator[OpenDataset]:
    """The dataset of a declaration; a catalog that is not there is not made."""
    catalog = dataset.catalog
    if catalog is None:
        raise ValueError(f"dataset '{dataset.key}' is declared without a catalog")
    if catalog.file is not None and not os.path.exists(catalog.file):
        raise CatalogError(f"The catalog '{catalog.shown}' does not exist")
    options = dataset.storage_options or None
    with Lakehouse(catalog.uri, storage_options=options) as house:
        lake = house.dataset(dataset.catalog_name)
        _check_directory(dataset, lake)
        yield OpenDataset(house, lake, catalog)


def _check_directory(dataset: DatasetConfig, lake: LakeDataset) -> None:
    """A path that is declared as well must be the one that the catalog has."""
    if not dataset.path:
        return
    options = dataset.storage_options or None
    declared, found = (open_store(p, storage_options=options) for p in (dataset.path, lake.path))
    if declared.url(declared.root) != found.url(found.root):
        raise CatalogError(
            f"dataset '{dataset.key}', field 'path': '{declared.shown}' is not where the catalog "
            f"has dataset '{lake.name}', which is '{found.shown}'. Leave path out"
        )


@dataclass(frozen=True, slots=True)
class CatalogLook:
    """A look at a dataset of a catalog."""

    dataset: DatasetConfig

    def partitions(self, after: str | None = None, below: str = "") -> Iterator[Partition]:
        """The directories of the newest version, and the files that it has in each."""
        with open_dataset(self.dataset) as opened:
            files = opened.lake.live_files()
        found: dict[tuple[str, ...], list[Listed]] = defaultdict(list)
        for file in files:
            directory = file.path.rpartition("/")[0]
            if _is_in(directory, below):
                found[_place(directory[len(below) :].lstrip("/"))].append(_listed(file))
        passed = None if after is None else _place(after)
        for place in sorted(found):
            if passed is None or place > passed:
                yield "/".join(place), found[place]

    def partition_columns(self) -> list[str]:
        """Those of the catalog; of files that were adopted, those that their paths have."""
        with open_dataset(self.dataset) as opened:
            declared = list(opened.lake.partition_by)
        named = (hive_columns(directory) for directory, _ in self.partitions() if directory)
        return declared or next(named, [])

    def plan(self) -> CompactionPlan:
        """That of a dry run."""
        dataset = self.dataset
        with open_dataset(dataset) as opened:
            targets = dataset.target_mb_per_file, dataset.target_rows_per_file
            done = opened.lake.compact(*targets, compression=dataset.compression, dry_run=True)
        if done.result is None:
            raise FileNotFoundError(f"dataset '{dataset.key}' has no file yet")
        return done.result.plan

    def busy(self) -> str | None:
        """Of two rewrites of the same files, the second would have worked for nothing."""
        found = [t for t in self._transactions() if t.is_alive and t.operation in _MAINTENANCE]
        return f"being maintained already: {_words(found[0])}" if found else None

    def leftovers(self) -> tuple[str, ...]:
        """Transactions that were not renewed in time."""
        return tuple(_words(found) for found in self._transactions() if not found.is_alive)

    def _transactions(self) -> tuple[OpenTransaction, ...]:
        with open_dataset(self.dataset) as opened:
            return opened.lake.transactions()


def _words(found: OpenTransaction) -> str:
    return f"{found.operation} transaction {found.txn_id} of {found.owner}"


def _listed(file: LiveFile) -> Listed:
    at = None if file.committed_at is None else file.committed_at.timestamp()
    return Listed(file.path, file.size_bytes, str(file.file_id), modified_at=at)


def _place(directory: str) -> tuple[str, ...]:
    return tuple(directory.split("/")) if directory else ()


def _is_in(directory: str, below: str) -> bool:
    return not below or directory == below or directory.startswith(f"{below}/")
