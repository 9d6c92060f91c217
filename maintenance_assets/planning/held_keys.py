"""Partition columns that files hold themselves, where others leave them to the path.

Merged, rows of the others would be NULL in the file, which is what readers take.
"""

from functools import lru_cache

from maintenance_assets.model.files import DataFile, FileInfo
from maintenance_assets.planning.partitions import known_partition_keys

Part = tuple[str, tuple[str, ...]]
"""A directory, and keys of it that files hold: files of one part may be merged."""


def held_keys(file: FileInfo) -> tuple[str, ...]:
    """Which keys of its directory a file has as columns, as far as its schema is known."""
    if "=" not in file.directory or not isinstance(file, DataFile):
        return ()
    return tuple(sorted(_keys(file.directory).intersection(file.schema.leaf_paths)))


def part_of(file: FileInfo) -> Part:
    """What a file belongs to."""
    return file.directory, held_keys(file)


@lru_cache(maxsize=1024)
def _keys(directory: str) -> frozenset[str]:
    return known_partition_keys([directory])
