"""What an operation tells its caller."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from maintenance_assets.model.changes import ChangeStats
from maintenance_assets.model.clustering import ColumnGain, Curve, PartitionDecision
from maintenance_assets.model.files import UntouchedFile
from maintenance_assets.model.plans import CompactionPlan, GroupFailure
from maintenance_assets.model.repartition import RepartitionStats
from maintenance_assets.model.stats import MaintenanceStats
from maintenance_assets.storage.publish import PublishMode


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The canonical stats and everything beside them."""

    stats: MaintenanceStats
    plan: CompactionPlan = field(repr=False)
    engine: str
    rows: int
    seconds: float
    rows_after: int = 0
    """Rows in scope afterwards; more than `rows` when somebody appended meanwhile."""
    schema: pa.Schema | None = field(default=None, repr=False)
    """The schema of the newest file in scope."""
    publish: PublishMode = "none"
    """How it became visible: `exchange` (at once), `ordered` (file by file) or `none`."""
    passes: int = 0
    conflicts: tuple[GroupFailure, ...] = ()
    """Groups dropped because another writer changed their files meanwhile."""
    failures: tuple[GroupFailure, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not as it was: widened types, dropped metadata."""
    engine_notes: tuple[str, ...] = ()
    """What the engine had to do another way; the data is the same."""
    recovered: tuple[str, ...] = ()
    engine_reason: str = ""
    """Why this engine: `asked for`, or what `auto` found."""
    written_by: Mapping[str, int] = field(default_factory=dict)
    """Groups written by each engine: what one cannot keep, another writes."""
    dataset: str = ""
    """Where the dataset is, without credentials."""
    partition_filter: Any = field(default=None, repr=False)
    """As it was given."""
    mode: Literal["stitch", "hybrid", "encode", "none"] = "none"
    """Whether row groups were copied, encoded anew, or some of each; of a dry run, as planned."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Groups by their mode."""
    mode_reasons: tuple[str, ...] = ()
    """Why groups were planned to be written that way."""

    @property
    def untouched(self) -> tuple[UntouchedFile, ...]:
        """Files left alone, each with its reason."""
        return self.plan.untouched

    def to_dict(self) -> dict[str, Any]:
        """The canonical stats."""
        return self.stats.to_dict()


@dataclass(frozen=True, slots=True)
class OptimizeResult(CompactionResult):
    """The same, and what clustering gained."""

    curve: Curve = "hilbert"
    columns: tuple[str, ...] = ()
    """The columns that rows are clustered by, without those that were dropped from the key."""
    gains: tuple[ColumnGain, ...] = ()
    """For each column: how many files a look-up of one value touches, before and after. A dry run
    predicts the latter from the sample."""
    decisions: tuple[PartitionDecision, ...] = ()
    """What was done with each partition (`full`, `incremental`, `none`), and why."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The figures of a delete, update or upsert, and everything beside them."""

    stats: ChangeStats
    engine: str
    engine_reason: str = ""
    seconds: float = 0.0
    files_pruned: int = 0
    """Files in scope that did not have to be looked into."""
    backup_id: str | None = None
    """What `restore` takes; None where no backup was made."""
    publish: PublishMode = "none"
    schema: pa.Schema | None = field(default=None, repr=False)
    """The schema of the newest file."""
    notes: tuple[str, ...] = ()
    """What is not as it was beside the values: widened types."""
    engine_notes: tuple[str, ...] = ()
    """What the engine had to do another way; the data is the same."""
    recovered: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figures, and `backup_id` where a backup was made."""
        figures = self.stats.to_dict()
        return figures if self.backup_id is None else {**figures, "backup_id": self.backup_id}


@dataclass(frozen=True, slots=True)
class RepartitionResult:
    """The figures of a repartition, and everything beside them."""

    stats: RepartitionStats
    engine: str
    """Who wrote: not always the engine that was asked."""
    engine_reason: str = ""
    seconds: float = 0.0
    partitions: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    """Rows by directory; a dry run predicts them."""
    validated: bool = False
    """Whether all rows were read again and found to be those of the source."""
    source_deleted: bool = False
    publish: PublishMode = "none"
    schema: pa.Schema | None = field(default=None, repr=False)
    """The schema of the files that were written."""
    notes: tuple[str, ...] = ()
    """What is not as it was: widened types, columns that paths had alone."""
    engine_notes: tuple[str, ...] = ()
    """What the engine had to do another way; the data is the same."""
    recovered: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figures."""
        return self.stats.to_dict()


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What recovery did, in words; empty when there was nothing to do."""

    actions: tuple[str, ...]
