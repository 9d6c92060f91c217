"""How rows are laid out along a curve: what is recorded, and what an engine is told."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa

Curve = Literal["hilbert", "morton", "linear"]
CURVES: tuple[str, ...] = get_args(Curve)
GROUPS_PER_FILE = 8
"""Row groups of a full file: inside it, a reader can skip at least this finely."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file's metadata says about how it was laid out."""

    curve: Curve
    columns: tuple[str, ...]
    bits: int
    grid: str
    """A hash of the boundaries that the ids were made with."""
    run: str
    """All files of a partition that were written together have the same."""
    files: int
    """How many those were."""
    target_bytes: int | None
    target_rows: int | None
    rows: tuple[int, ...]
    """How many rows a file of these may have."""
    depths: tuple[float, ...]
    """The overlap that was foreseen, column by column; empty where a sample could not tell."""


@dataclass(frozen=True, slots=True)
class ColumnRanks:
    """Turns values of a column into ids: equal shares of the rows get equal shares of the ids."""

    column: str
    values: pa.Array = field(compare=False, hash=False)
    """Sorted values at which the id changes, in the form of `orderable()`."""
    at: Any = field(compare=False, hash=False)
    """numpy: the id of each of these values."""
    below: Any = field(compare=False, hash=False)
    """numpy: the id of what lies just below each of them; one more for what is above all."""
    nan: int
    null: int


@dataclass(frozen=True, slots=True)
class Clustering:
    """Everything that decides which row goes into which file, the same on every engine."""

    columns: tuple[str, ...]
    curve: Curve
    bits: int
    cell_bits: int
    """Leading bits of a key that are counted and cut at."""
    ranks: tuple[ColumnRanks, ...]
    row_group_rows: int


@dataclass(frozen=True, slots=True)
class ColumnOverlap:
    """How well one column tells files apart: what a look-up of one value has to open."""

    column: str
    depth: float
    """Files whose range holds the value of a row, on average over rows."""
    share: float
    """The same as a share of the files of the partition."""
    is_known: bool = True
    """False where the footer of a file tells no range: then it counts as one that holds all."""


@dataclass(frozen=True, slots=True)
class ColumnGain:
    """The overlap of a column before and after."""

    column: str
    depth_before: float
    depth_after: float
    share_before: float
    share_after: float
    is_known_before: bool = True
    is_known_after: bool = True


Action = Literal["full", "incremental", "none"]


@dataclass(frozen=True, slots=True)
class PartitionDecision:
    """What is done with one partition, and why."""

    directory: str
    action: Action
    reason: str
    files: int
    """Files that the partition has."""
    rewritten: int
    """Files of these that are rewritten."""
    outputs: int
    rows: int
    before: tuple[ColumnOverlap, ...] = ()
    after: tuple[ColumnOverlap, ...] = ()
    """Measured on what was written; in a dry run, predicted from the sample."""
    held: tuple[str, ...] = ()
    """Keys of the directory that its files hold themselves: others in it are apart from them."""

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What tells it from all other partitions."""
        return self.directory, self.held
