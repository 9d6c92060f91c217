"""Plans: what an operation is going to do, as values that can be printed and compared."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from maintenance_assets.model.changes import GroupChange
from maintenance_assets.model.clustering import Clustering, PartitionDecision
from maintenance_assets.model.files import DataFile, FileInfo, SortedColumn, UntouchedFile
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.model.stats import MaintenanceStats

GroupMode = Literal["stitch", "hybrid", "encode"]
"""All row groups are copied, some are, or none."""


@dataclass(frozen=True, slots=True)
class CompactionGroup:
    """Files of one partition that are rewritten together."""

    files: tuple[FileInfo, ...]
    output_rows: tuple[int, ...] = ()
    """Rows of each output file; empty when the group was built by hand."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))
        if not self.files:
            raise ValueError("a group needs at least one file")

    @property
    def total_size_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """Rows of the input files."""
        return sum(file.num_rows for file in self.files)

    def file_paths(self) -> list[str]:
        """Paths of the input files."""
        return [file.path for file in self.files]


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How outputs are encoded, so that nothing the sources had is lost."""

    codec: str
    column_codecs: tuple[tuple[str, str], ...]
    """Leaf columns (by Parquet path) with a codec of their own."""
    column_encodings: tuple[tuple[str, str], ...]
    """Leaf columns that are written without a dictionary, and the encoding they have instead."""
    store_arrow_schema: bool
    int96_timestamps: bool
    decimals_as_integers: bool
    times_in_utc: bool
    page_index: bool
    sorting: tuple[SortedColumn, ...] = ()
    """The order that rows are in, to be declared in the outputs."""

    def codecs(self) -> tuple[str, ...]:
        """All codecs in use."""
        return (self.codec, *(codec for _, codec in self.column_codecs))


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """A group with everything an engine needs to write it."""

    directory: str
    files: tuple[DataFile, ...]
    output_rows: tuple[int, ...]
    schema: pa.Schema = field(compare=False, hash=False)
    writer: WriterOptions
    notes: tuple[str, ...] = ()
    clustering: Clustering | None = field(default=None, compare=False, hash=False)
    """How rows are laid out anew; None where they keep their order."""
    mode: GroupMode = "encode"
    mode_reason: str = ""
    must_stitch: bool = False
    """Rather not at all than any other way."""
    keeps_copied_sorting: bool = False
    """Whether row groups that are copied go on declaring the order that holds inside each."""
    change: GroupChange | None = field(default=None, compare=False, hash=False)
    """What becomes of the rows; None where all stay as they are."""

    @property
    def decoded_bytes(self) -> int:
        """Estimate of the size of all rows in memory."""
        return sum(file.decoded_bytes for file in self.files)

    @property
    def total_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """Rows of the input files."""
        return sum(file.num_rows for file in self.files)

    def file_paths(self) -> list[str]:
        """Paths of the input files."""
        return [file.path for file in self.files]


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A group that was not rewritten, and the reason in words; its files are untouched."""

    paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction will do; a dry run is this value, reported."""

    root: str
    policy: CompactionPolicy
    groups: tuple[RewriteGroup, ...]
    untouched: tuple[UntouchedFile, ...]
    failures: tuple[GroupFailure, ...]
    predicted: MaintenanceStats
    metadata_files: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to rewrite."""
        return not self.groups

    def without(self, paths: Collection[str]) -> "CompactionPlan":
        """The plan less every group with one of these files."""
        kept = (group for group in self.groups if not set(paths).intersection(group.file_paths()))
        return replace(self, groups=tuple(kept))


@dataclass(frozen=True, slots=True)
class OptimizePlan(CompactionPlan):
    """What a clustering will do, and for each partition why."""

    decisions: tuple[PartitionDecision, ...] = ()
