"""Find the data files of a dataset: listing, what to ignore, what to refuse."""

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from maintenance_assets.errors import UnsupportedDatasetError
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.planning.partitions import (
    PartitionFilter,
    check_filter_keys,
)
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.footers import read_footers

DATA_SUFFIX = ".parquet"
# Outputs end in .parquet, so only files that `*.parquet` readers see may be merged into them.
LAKEHOUSE_MARK = "_lakehouse"
"""The directory that says which catalog a dataset belongs to."""
_FORMAT_MARKS = {
    LAKEHOUSE_MARK: "a dataset of a lakehouse catalog (use Lakehouse(...).dataset(...), or "
    "--catalog in a shell)",
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the sink of a Spark stream, which lists its files itself",
}


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies below a root: data files, and summary files that can go stale."""

    data: tuple[Listed, ...]
    metadata_files: tuple[str, ...]


def discover(
    store: Store,
    partition_filter: PartitionFilter | None = None,
    on_progress: ProgressCallback | None = None,
    ranges_of: Sequence[str] = (),
    known: Mapping[str, DataFile] | None = None,
) -> Snapshot:
    """List a dataset and read all footers in scope, in parallel.

    `ranges_of` names columns, by dotted path, whose smallest and largest values are wanted.
    `known` are files as an earlier discovery of the same kind found them, by path: of those that
    are still the same the footers are not read again.
    """
    return read_listed(store, list_dataset(store), partition_filter, on_progress, ranges_of, known)


def read_listed(
    store: Store,
    listing: Listing,
    partition_filter: PartitionFilter | None = None,
    on_progress: ProgressCallback | None = None,
    ranges_of: Sequence[str] = (),
    known: Mapping[str, DataFile] | None = None,
) -> Snapshot:
    """What `discover` finds, of a dataset that has been listed already."""
    chosen = select(store, listing.data, partition_filter)
    files = read_footers(store, chosen, on_progress, ranges_of, known)
    summaries = (*listing.metadata_files, *summaries_above(store))
    return Snapshot(store.root, files, summaries)


def list_dataset(store: Store) -> Listing:
    """List the data files below the root; refuse what is not a plain directory."""
    if store.is_local:
        _require_directory(store, os.path.exists(store.root), os.path.isdir(store.root))
    refuse_formats_above(store)
    entries = list(_walk_local(store, store.root)) if store.is_local else store.find(store.root)
    if not entries and not store.is_local:
        _require_directory(store, bool(store.fs.exists(store.root)), True)
    _require_directory(store, True, not any(entry.path == store.root for entry in entries))
    return _sort_out(store, entries)


def select(
    store: Store, data: Iterable[Listed], partition_filter: PartitionFilter | None
) -> tuple[Listed, ...]:
    """The files in the partitions a filter names; an error when there are none."""
    chosen = tuple(data)
    matching = ""
    if partition_filter is not None and chosen:
        directories = {_directory(store, entry.path) for entry in chosen}
        check_filter_keys(partition_filter, directories)
        kept = {directory for directory in directories if partition_filter.matches(directory)}
        chosen = tuple(entry for entry in chosen if _directory(store, entry.path) in kept)
    if partition_filter is not None:
        matching = f" matching filter {partition_filter}"
    if not chosen:
        raise FileNotFoundError(f"No parquet files found under '{store.shown}'{matching}")
    return chosen


def _directory(store: Store, path: str) -> str:
    return store.relative(posixpath.dirname(path))


def require_directory(store: Store) -> None:
    """An error where nothing is at the root, or a file."""
    is_directory = os.path.isdir(store.root) if store.is_local else True
    _require_directory(store, store.exists(store.root), is_directory)


def _require_directory(store: Store, exists: bool, is_directory: bool) -> None:
    if not exists:
        raise FileNotFoundError(f"Dataset path '{store.shown}' does not exist")
    if not is_directory:
        raise UnsupportedDatasetError(
            f"Dataset path '{store.shown}' is a file. Give the directory that holds it."
        )


def _walk_local(store: Store, folder: str) -> Iterator[Listed]:
    with _entries_of(store, folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            refuse_format(store, entry.name, entry.path)
            hidden = entry.name.startswith(("_", "."))
            if entry.is_symlink() and not hidden:
                raise UnsupportedDatasetError(
                    f"'{entry.path}' is a symbolic link. Links inside a dataset are not followed: "
                    "move the data in, or maintain the link's target as a dataset of its own."
                )
            if entry.is_dir(follow_symlinks=False):
                if not hidden:
                    yield from _walk_local(store, entry.path)
            elif (listed := _listed(entry)) is not None:
                yield listed


def _listed(entry: "os.DirEntry[str]") -> Listed | None:
    """A file as listed; None for one that a writer has renamed or deleted since."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return Listed(entry.path, status.st_size, version, modified_at=status.st_mtime)


def _entries_of(store: Store, folder: str) -> AbstractContextManager[Iterable["os.DirEntry[str]"]]:
    """What is in a directory; one below the root may have been dropped since it was listed."""
    try:
        return os.scandir(folder)
    except FileNotFoundError:
        if folder == store.root:
            raise
        return nullcontext(())


def _sort_out(store: Store, entries: Iterable[Listed]) -> Listing:
    data, metadata_files = [], []
    for entry in entries:
        segments = store.relative(entry.path).split("/")
        for segment in segments[:-1]:
            refuse_format(store, segment, entry.path)
        _refuse_iceberg(store, segments, entry.path)
        hidden = [segment for segment in segments if segment.startswith(("_", "."))]
        if segments[-1] == "_metadata" and len(hidden) == 1:
            metadata_files.append(entry.path)
        if not hidden and segments[-1].endswith(DATA_SUFFIX):
            _require_version(store, entry)
            data.append(entry)
    return Listing(tuple(sorted(data, key=lambda entry: entry.path)), tuple(metadata_files))


def _require_version(store: Store, entry: Listed) -> None:
    if not entry.has_version:
        raise UnsupportedDatasetError(
            f"The store of '{store.shown}' tells neither a version nor a time of '{entry.path}': "
            "a replaced file could not be told from the one that was read."
        )


def refuse_format(store: Store, name: str, path: str) -> None:
    """Raise if a folder of this name says that another tool owns what is around it."""
    if name in _FORMAT_MARKS:
        raise UnsupportedDatasetError(
            f"'{store.shown}' holds or lies in {_FORMAT_MARKS[name]} ('{name}' at '{path}'). "
            "Rewriting its files would break it: maintain it with its own tools."
        )


def _refuse_iceberg(store: Store, segments: list[str], path: str) -> None:
    if segments[-2:-1] == ["metadata"] and (
        segments[-1].endswith(".metadata.json") or segments[-1] == "version-hint.text"
    ):
        raise UnsupportedDatasetError(
            f"'{store.shown}' holds or lies in an Iceberg table (its metadata is at '{path}'). "
            "Rewriting its files would break it: maintain it with its own tools."
        )


def refuse_formats_above(store: Store) -> None:
    """A directory inside a table of another format is part of that table."""
    folder = posixpath.dirname(store.root)
    while folder not in ("", "/"):
        for name in _FORMAT_MARKS:
            mark = f"{folder}/{name}"
            if os.path.isdir(mark) if store.is_local else _is_directory(store, mark):
                refuse_format(store, name, mark)
        for name in _names(store, f"{folder}/metadata"):
            _refuse_iceberg(store, ["metadata", name], f"{folder}/metadata/{name}")
        folder = posixpath.dirname(folder)


def refuse_adopted(store: Store) -> None:
    """Raise if a catalog owns the directory, or the dataset that it is a partition of."""
    folder, name = posixpath.split(store.root)
    marks = [store.path(LAKEHOUSE_MARK)]
    while "=" in name:  # a partition is adopted with its dataset
        marks.append(f"{folder}/{LAKEHOUSE_MARK}")
        folder, name = posixpath.split(folder)
    for mark in marks:
        if os.path.isdir(mark) if store.is_local else _is_directory(store, mark):
            refuse_format(store, LAKEHOUSE_MARK, mark)


def summaries_above(store: Store) -> list[str]:
    """`_metadata` of the dataset that this root is a partition of: it lists our files too."""
    found = []
    folder, name = posixpath.split(store.root)
    while "=" in name:
        if store.exists(f"{folder}/_metadata"):
            found.append(f"{folder}/_metadata")
        folder, name = posixpath.split(folder)
    return found


def _names(store: Store, folder: str) -> set[str]:
    try:
        return store.children(folder)
    except (PermissionError, NotADirectoryError, OSError, ValueError):
        return set()


def _is_directory(store: Store, path: str) -> bool:
    try:
        return bool(store.fs.isdir(path))
    except (PermissionError, OSError, ValueError):
        return False  # a parent that may not be listed cannot be checked
