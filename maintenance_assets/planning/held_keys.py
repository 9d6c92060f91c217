"""Partition columns that files hold themselves, where others leave them to the path.

Merged, rows of the others would read NULL in the file and a value in the path.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from maintenance_assets.errors import SchemaConflictError
from maintenance_assets.model.files import DataFile, FileInfo
from maintenance_assets.planning.partitions import known_partition_keys


def held_keys(file: FileInfo) -> tuple[str, ...]:
    """Which keys of its directory a file has as columns, as far as its schema is known."""
    if "=" not in file.directory or not isinstance(file, DataFile):
        return ()
    return tuple(sorted(_keys(file.directory).intersection(file.schema.leaf_paths)))


@lru_cache(maxsize=1024)
def _keys(directory: str) -> frozenset[str]:
    return known_partition_keys([directory])


def refuse_mixed(files: Iterable[DataFile]) -> None:
    """Raise SchemaConflictError unless all files of a directory hold the same keys."""
    first: DataFile | None = None
    for file in files:
        first = first or file
        differing = {*held_keys(first)} ^ {*held_keys(file)}
        if differing:
            column = min(differing)
            holder, other = (first, file) if column in held_keys(first) else (file, first)
            raise SchemaConflictError(_HeldByOne(column, holder.path, other.path))


@dataclass(frozen=True, slots=True)
class _HeldByOne:
    """A partition column that one file holds and another one leaves to the path."""

    column: str
    holder: str
    other: str

    def describe(self) -> str:
        """The conflict and its remedy in one sentence each."""
        return (
            f"partition column {self.column!r} is in {self.holder!r}, and {self.other!r} leaves "
            "it to the path: in one file, rows of the latter would hold NULL. Repartition the "
            "dataset in place, which writes the column into all of its files"
        )
