"""A plan as it is saved: what was decided, and the exact files that it was decided about."""

from dataclasses import dataclass
from typing import Any, Literal

from maintenance_assets.model.clustering import Curve
from maintenance_assets.model.files import FileInfo
from maintenance_assets.model.plans import GroupFailure
from maintenance_assets.model.policy import CompactionPolicy

SavedOperation = Literal["compact", "optimize"]


@dataclass(frozen=True, slots=True)
class SavedFile(FileInfo):
    """A file by its path from the root, in the version that was looked at."""

    version: str


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """Files of one directory that are rewritten together."""

    directory: str
    inputs: tuple[SavedFile, ...]
    output_rows: tuple[int, ...]
    beside: tuple[SavedFile, ...] = ()
    """Files of the directory that stay, and that a clustering was fitted to."""
    grid: str = ""
    """A hash of the boundaries that a clustering cuts at."""


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What a run is to do; carried out as it is, or refused."""

    operation: SavedOperation
    dataset: str
    """Where the dataset is, without credentials."""
    engine: str
    policy: CompactionPolicy
    groups: tuple[SavedGroup, ...]
    failures: tuple[GroupFailure, ...] = ()
    partition_filter: Any = None
    """As it was given: text, a list or a dict."""
    columns: tuple[str, ...] = ()
    curve: Curve = "hilbert"

    @property
    def file_count(self) -> int:
        """Files that are rewritten."""
        return sum(len(group.inputs) for group in self.groups)

    @property
    def total_bytes(self) -> int:
        """Bytes that are rewritten."""
        return sum(file.size_bytes for group in self.groups for file in group.inputs)

    @property
    def output_count(self) -> int:
        """Files that come of them."""
        return sum(len(group.output_rows) for group in self.groups)
