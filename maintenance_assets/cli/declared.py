"""What a declaration of a dataset says, compared with what is at its path."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.planning.optimization import check_columns
from maintenance_assets.storage.discovery import list_dataset
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.footers import read_footers

_LOOKS = 20
"""Footers that are read, of any number of files."""


def look_into(dataset: Any) -> int:
    """How many files a dataset has; DatasetConfigError names the field that does not fit it."""
    field = "path" if dataset.catalog is None else "catalog"
    try:
        files = _count(dataset)
        field = "partition_columns"
        _require_partitions(dataset)
        field = "zorder_columns"
        _require_columns(dataset)
        return files
    # A store's own errors are as many as there are stores; all of them mean this dataset.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DatasetConfigError(f"dataset '{dataset.key}', field '{field}': {reason}") from error


def _count(dataset: Any) -> int:
    if dataset.catalog is not None:
        return sum(len(files) for _, files in _look_at(dataset).partitions())
    return len(list_dataset(_store(dataset)).data)


def _look_at(dataset: Any) -> Any:
    from maintenance_assets.orchestration.planner import look_at

    return look_at(dataset)


def _store(dataset: Any) -> Store:
    return open_store(dataset.path, storage_options=dataset.storage_options or None)


def _require_partitions(dataset: Any) -> None:
    """Declared columns have to be in the paths; there need not be any path yet."""
    found = _look_at(dataset).partition_columns()
    missing = [name for name in dataset.partition_columns or () if name not in found]
    if missing and found:
        raise ValueError(
            f"{', '.join(missing)}: not in the paths of the dataset, which have {', '.join(found)}"
        )


def _require_columns(dataset: Any) -> None:
    """What to cluster by has to be in some of the files, or in their paths."""
    if not dataset.zorder_columns or dataset.catalog is not None:
        return
    store = _store(dataset)
    files = read_footers(store, _some(list_dataset(store).data))
    in_paths = _look_at(dataset).partition_columns()
    columns = [name for name in dataset.zorder_columns if name not in in_paths]
    if files:
        check_columns([file.schema.arrow for file in files], columns)


def _some(files: Sequence[Listed]) -> list[Listed]:
    """The newest file and the oldest one, and some from all over the dataset."""
    by_age = sorted(files, key=lambda file: file.modified_at or 0.0)
    spread = files[:: max(1, len(files) // _LOOKS)]
    return list({file.path: file for file in chain(by_age[-1:], by_age[:1], spread)}.values())
