"""What is known of a Parquet file without decoding it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

DICTIONARY = "dictionary"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The least a planner needs: where a file is, how big, how many rows."""

    path: str
    size_bytes: int
    num_rows: int

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.num_rows < 0:
            raise ValueError(f"sizes and row counts must be >= 0: {self}")

    @property
    def directory(self) -> str:
        """The directory of the file, which is its partition."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class UntouchedFile(FileInfo):
    """A file that a plan leaves alone, and why."""

    reason: str = ""
    version: str = field(default="", compare=False, repr=False)
    """Where the plan depends on it."""


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a file; files with equal schemas share one instance."""

    arrow: pa.Schema = field(compare=False, hash=False)
    fingerprint: str
    leaf_paths: tuple[str, ...]
    """Parquet's own name of each leaf column."""
    leaves: tuple[str, ...]
    """Parquet's own view, one text per leaf column: physical and logical type."""
    stores_arrow_schema: bool
    annotations: tuple[str, ...] = ()
    """Logical types of groups of columns that Arrow does not know (VARIANT)."""
    old_timestamps: tuple[str, ...] = ()
    """Leaf columns that are said to be timestamps in Parquet's old notation alone."""

    @property
    def has_int96(self) -> bool:
        """Whether any leaf is a legacy INT96 timestamp."""
        return any(leaf.startswith("INT96") for leaf in self.leaves)


@dataclass(frozen=True, slots=True)
class SortedColumn:
    """One column of a declared sort order."""

    path: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        direction = " descending" if self.descending else ""
        return f"{self.path}{direction}{' nulls first' if self.nulls_first else ''}"


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The smallest and the largest value of a column in a file, as its footer tells them."""

    column: str
    low: Any
    """A pyarrow scalar; None where the footer does not say."""
    high: Any
    all_null: bool = False
    no_nulls: bool = False
    """Every row has a value."""
    numbers: tuple[Any, ...] | None = None
    """Where the footer does not say, for some row groups hold nothing but NaN: the bounds of the
    others, or nothing where there are no others."""


@dataclass(frozen=True, slots=True)
class DataFile(FileInfo):
    """A file as discovery found it: listing entry and footer together."""

    version: str
    """Changes whenever the content at this path is replaced (inode and mtime, or etag)."""
    schema: FileSchema
    data_bytes: int
    """Compressed column chunks: the size without footer and indexes."""
    decoded_bytes: int
    """Estimate of the size in memory, from the schema and the footer."""
    row_group_count: int
    codecs: tuple[str, ...]
    """Codec of each leaf column, in the order of the schema."""
    encodings: tuple[str, ...] = ()
    """Encoding of each leaf column: `dictionary`, or the name of the one used instead."""
    has_page_index: bool = False
    sorting: tuple[SortedColumn, ...] = ()
    """The order of rows that all row groups declare."""
    ranges: tuple[ColumnRange, ...] = field(default=(), compare=False, hash=False, repr=False)
    """Of the columns that discovery was asked about."""
    created_by: str = ""
    """The writer's name of itself."""
    footer_bytes: int = 0
    """How long the end of the file is that says what is in it."""
    group_rows: tuple[int, ...] = field(default=(), repr=False)
    """Rows of each row group; not told of a single one."""
    group_bytes: tuple[int, ...] = field(default=(), repr=False)
    """Compressed bytes of each row group; not told of a single one."""
    mixes_codecs: bool = False
    """Whether some row groups have another codec than is told of their column."""

    @property
    def row_groups(self) -> tuple[tuple[int, int], ...]:
        """Rows and compressed bytes of each row group; empty where they are not known."""
        if self.row_group_count == 1:
            return ((self.num_rows, self.data_bytes),)
        return tuple(zip(self.group_rows, self.group_bytes, strict=True))

    def has_column(self, column: str) -> bool:
        """Whether there is a leaf column of this dotted path."""
        return column in self.schema.leaf_paths


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All data files of a dataset (or of the filtered scope) at one moment."""

    root: str
    files: tuple[DataFile, ...]
    metadata_files: tuple[str, ...] = ()
    """Summary files (`_metadata`) that go stale when any data file changes."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all data files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """Rows of all data files."""
        return sum(file.num_rows for file in self.files)

    def by_path(self) -> Mapping[str, DataFile]:
        """Files by path."""
        return {file.path: file for file in self.files}
