"""What there is to say about a dataset at one moment."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from maintenance_assets.model.health import Decision, HealthReport, PartitionHealth


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition, and whether a compaction is worth it now."""

    health: PartitionHealth
    report: HealthReport
    decision: Decision
    cost: str
    """What a compaction of its small files would cost, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "partition": self.health.partition,
            "file_count": self.health.file_count,
            "total_bytes": self.health.total_bytes,
            "small_files": self.health.small_files,
            "gain": self.health.gain,
            "health": self.report.to_dict(),
            "compact_now": self.decision.run,
            "reason": self.decision.reason,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """Files of a size: at least that of the bucket before, and less than `below_bytes`."""

    below_bytes: int | None
    files: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class DriftedColumn:
    """A column that is not the same in all files."""

    column: str
    types: Mapping[str, int]
    """Files by the type that they have it in."""
    missing: int
    """Files without it."""


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """Files, health and what is under way."""

    dataset: str
    file_count: int
    total_bytes: int
    rows: int
    row_groups: int
    partitions: int
    small_files: int
    gain: int
    """Files that compaction would save."""
    codecs: tuple[str, ...]
    clustered_by: tuple[str, ...]
    health: HealthReport
    worst: tuple[PartitionStatus, ...]
    in_need: int
    """Partitions that are worth a run now."""
    schemas: int
    drift: tuple[DriftedColumn, ...]
    unreadable: tuple[tuple[str, str], ...]
    """Files that look like data and cannot be read, and why."""
    leftovers: tuple[str, ...]
    """Interrupted runs that wait to be recovered."""
    holders: tuple[str, ...]
    """Who is maintaining the dataset right now."""
    histogram: tuple[SizeBucket, ...]
    planned_rewrites: int
    """Files that a compaction would rewrite."""
    planned_outputs: int
    """Files that would come of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values under stable names."""
        nested = {
            "health": self.health.to_dict(),
            "worst": [part.to_dict() for part in self.worst],
            "drift": [asdict(column) for column in self.drift],
            "histogram": [asdict(bucket) for bucket in self.histogram],
            "unreadable": [{"path": path, "reason": why} for path, why in self.unreadable],
        }
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in nested}
        lists = {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}
        return {**lists, **nested}
