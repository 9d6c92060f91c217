"""Values of a catalog: columns with identities, files with lifetimes, commits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"

PartitionKey = tuple[tuple[str, str], ...]
"""Keys and values of a partition as they are spelled in its directory, outermost first."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column keeps its id for life, whatever it is called and however it is widened."""

    field_id: int
    field: Any
    """The pyarrow field: name, type and nullability, without an id in its metadata."""

    @property
    def name(self) -> str:
        """What the column is called in this schema."""
        return str(self.field.name)

    @property
    def type(self) -> Any:
        """Its pyarrow type."""
        return self.field.type


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a dataset at some version."""

    schema_id: int
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """What readers see."""
        return pa.schema([column.field for column in self.columns])

    @property
    def with_ids(self) -> pa.Schema:
        """What is written into files: the same with field ids."""
        return pa.schema(
            [
                c.field.with_metadata(
                    {**(c.field.metadata or {}), FIELD_ID: str(c.field_id).encode()}
                )
                for c in self.columns
            ]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)

    def require(self, name: str) -> Column:
        """The column of that name; ValueError when there is none."""
        column = self.find(name)
        if column is None:
            raise ValueError(f"Unknown column {name!r}. Available columns: {', '.join(self.names)}")
        return column


@dataclass(frozen=True, slots=True)
class PhysicalSchema:
    """The schema that files were written with, and which column each of their fields is."""

    arrow: pa.Schema = field(compare=False, hash=False)
    mapping: tuple[tuple[str, int], ...]
    """Name in the file and field id, for every column that the file is known to hold."""
    physical_id: int = -1

    def name_of(self, field_id: int) -> str | None:
        """What a column is called in these files; None where they do not have it."""
        return next((name for name, found in self.mapping if found == field_id), None)


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Of one column, one entry per row group; None where a footer does not say."""

    null_counts: tuple[int | None, ...]
    lows: tuple[bytes | None, ...]
    highs: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of one column of one file; bounds are in a form whose bytes are ordered like the values."""

    field_id: int
    null_count: int | None
    low: bytes | None
    high: bytes | None
    groups: GroupStatistics | None = None
    """Only of files with several row groups."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written (or adopted) file that a commit is going to add."""

    path: str
    """Relative to the root of the dataset."""
    size_bytes: int
    row_count: int
    physical: PhysicalSchema
    partition: PartitionKey = ()
    row_group_rows: tuple[int, ...] = ()
    statistics: tuple[ColumnStatistics, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A file that a version consists of."""

    file_id: int
    path: str
    size_bytes: int
    row_count: int
    physical_id: int
    begin_version: int
    partition: PartitionKey = ()
    row_group_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the newest version, as a listing would have it."""

    file_id: int
    path: str
    size_bytes: int
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Somebody who is at work on a dataset, or who died over it."""

    txn_id: str
    operation: str
    owner: str
    opened_at: datetime
    is_alive: bool
    """Whether its lease was renewed in time."""


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of a declared sort order."""

    field_id: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class DatasetState:
    """What the catalog knows of a dataset at its newest version."""

    dataset_id: int
    name: str
    root: str
    uid: str
    head: int
    schema: TableSchema
    partition_by: tuple[str, ...]
    """Names of the partition columns, outermost first."""
    sort_by: tuple[SortField, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version in the history of a dataset."""

    version: int
    committed_at: datetime
    operation: str
    author: str | None
    message: str | None
    txn_id: str
    schema_id: int
    data_change: bool
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    total_files: int
    total_rows: int
    total_bytes: int
    expired: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


Reads = Literal["nothing", "removed", "everything"]
"""What must not have changed since the base of a transaction: nothing (an append), the files it
removes (a rewrite), or any data at all (a change of rows, which looked at all of them)."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction wants to make of a dataset; applied whole or not at all."""

    operation: str
    added: tuple[NewFile, ...] = ()
    removed: tuple[int, ...] = ()
    """Ids of files of the base version."""
    clears: bool = False
    """Removes whatever is there at the moment of the commit."""
    clears_partitions: frozenset[PartitionKey] = frozenset()
    """Removes whatever is in these partitions at the moment of the commit."""
    revives: int | None = None
    """Makes the dataset what it was at this version, columns included."""
    schema: TableSchema | None = None
    """The new schema, made from the one that was current when it was planned."""
    schema_base: int | None = None
    """The schema that data was fitted to; the commit is refused if it is not the newest one."""
    partition_by: tuple[str, ...] | None = None
    """The new partition columns."""
    reads: Reads = "nothing"
    data_change: bool = True
    author: str | None = None
    message: str | None = None
    summary: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class Ticket:
    """An open transaction: whoever holds the newest fence may commit it."""

    dataset_id: int
    txn_id: str
    fence: int
    base_version: int
    operation: str
    committed_version: int | None = None
    """Set when a transaction of this id was committed before: there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Something that keeps a version alive."""

    version: int
    kind: str
    name: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A file that no version from here on needs, and since when."""

    path: str
    removed_at: datetime
    reason: str
    size_bytes: int | None = None
