"""The figures of a repartition."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RepartitionStats:
    """Figures that are the same on every engine for the same work; a dry run predicts them."""

    partitions_created: int
    files_read: int
    files_written: int
    rows_read: int
    rows_written: int
    bytes_before: int
    bytes_after: int
    errors: int
    """Always 0: what goes wrong is raised, and nothing is published."""
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """The figures by their names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """What a repartition would make of a dataset."""

    num_partitions: int
    total_rows: int
    avg_rows_per_partition: float
    estimated_size_mb: float
    partition_cols: tuple[str, ...]
    num_files: int
    is_exact: bool
    """Whether the partitions were counted; else they are the guess of a sample."""

    def to_dict(self) -> dict[str, Any]:
        """The figures under the names of the guide."""
        return {
            "num_partitions": self.num_partitions,
            "total_rows": self.total_rows,
            "avg_rows_per_partition": self.avg_rows_per_partition,
            "estimated_size_mb": self.estimated_size_mb,
            "partition_cols": list(self.partition_cols),
        }
