"""What an engine is told about a repartition, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.transform import Transform
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.planning.content_hash import Digest
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.values import BoundValue


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How a row comes to be: from its file, its path, derived values and the user's function."""

    root: str
    """Of the source: what is below it may name partitions."""
    columns: DatasetColumns
    rows: pa.Schema = field(compare=False)
    """Columns of files, then of paths, then derived ones."""
    derived: tuple[tuple[str, BoundValue], ...] = ()
    transform: Transform | None = None
    transformed: pa.Schema | None = field(default=None, compare=False)
    """What the function makes of `rows`."""

    @property
    def stored(self) -> pa.Schema:
        """The columns of files."""
        return self.columns.stored

    @property
    def final(self) -> pa.Schema:
        """All columns that a row has in the end."""
        return self.rows if self.transformed is None else self.transformed

    def directory(self, file: DataFile) -> str:
        """The directory of a file as seen from the root."""
        return file.directory[len(self.root) :].lstrip("/")


@dataclass(frozen=True, slots=True)
class RepartitionTask:
    """Files whose rows are to be written into other directories."""

    files: tuple[DataFile, ...]
    """By path: the order of their rows."""
    plan: RowPlan
    partition_by: tuple[str, ...]
    schema: pa.Schema = field(compare=False)
    """What is written: the final columns, without those that only the path is to have."""
    writer: WriterOptions
    target: CompactionPolicy
    batch_rows: int
    stage: Callable[[str], str]
    """The path of a new file for a directory."""
    validate: bool

    @property
    def hashed(self) -> tuple[str, ...]:
        """Columns whose values are compared: those that were there before they were written."""
        derived = {name for name, _ in self.plan.derived}
        if self.plan.transform is not None:
            derived = set()
        return tuple(name for name in self.schema.names if name not in derived)

    @property
    def total_rows(self) -> int:
        """Rows of all files."""
        return sum(file.num_rows for file in self.files)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def decoded_bytes(self) -> int:
        """Estimate of the size of all rows in memory."""
        return sum(file.decoded_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A written file, and what it held when it was read again."""

    directory: str
    path: str
    rows: int
    found: Digest | None = None


@dataclass(frozen=True, slots=True)
class RepartitionOutcome:
    """What was written, and what should have been."""

    engine: str
    rows_read: int
    read: Digest
    """Of all rows as they were read (after the user's function, where there is one)."""
    expected: Mapping[str, Digest]
    """By directory."""
    parts: tuple[WrittenPart, ...]
    notes: tuple[str, ...] = ()


Report = Callable[[int], Any]
"""Called with the number of rows that are done."""
