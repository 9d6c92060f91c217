"""What delete, update and upsert do to files, and their figures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ChangeStats:
    """Figures that are the same on every engine for the same change; a dry run has them too."""

    partitions_affected: int
    """Directories in which a file comes or goes."""
    files_read: int
    """Files that had to be looked into: neither their paths nor their footers ruled them out."""
    files_written: int
    files_deleted: int
    """Files of which no row is left in their place; what is rewritten does not count."""
    rows_before: int
    """Rows in scope: those of the whole dataset, or of the partitions that a filter names."""
    rows_after: int
    rows_deleted: int
    rows_updated: int
    """Rows that were to be changed, whether or not they had these values already."""
    rows_inserted: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """The figures by their names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FileScan:
    """What a look into a file found."""

    matches: int
    moved: tuple[tuple[str, int], ...] = ()
    """Rows that will belong to another directory, by that directory."""
    source_rows: Any = field(default=None, compare=False, repr=False)
    """numpy: for each matching row, in the order of the file, the row of the new data."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """What has to come of a file, as its scan promised."""

    matches: int
    given_up: Any = field(default=None, compare=False, repr=False)
    """numpy: rows of the new data whose one copy is in another file; here their rows go."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """How the rows of a group change on their way from its files to its outputs."""

    rule: Any
    """A `planning.changes.Rule`."""
    files: tuple[FileChange, ...]
    """For each file of the group."""
    directory: str
    """Where the files lie, as seen from the root."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """pyarrow scalars: columns that all rows of these files have one value of, by their path."""
    moved: tuple[tuple[str, int], ...] = ()
    """Rows that leave the directory, by the one they come to."""
    staging: str = ""
    """The directory to write those into until they are published."""


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A written file whose rows come from another directory."""

    directory: str
    path: str
    rows: int
