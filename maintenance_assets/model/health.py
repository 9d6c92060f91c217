"""How healthy a partition is, as far as a listing tells."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """When small files are a debt worth paying."""

    target_bytes: int
    small_bytes: int
    """Files below this size are small, except our own outputs from half the target up."""
    min_gain: int = 4
    """Fewer files than this saved are not worth a run."""
    cooldown_seconds: float = 600.0
    """A partition that was written to since may not be finished yet."""


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Counts of one partition directory; the empty name is the root itself."""

    partition: str
    file_count: int
    total_bytes: int
    small_files: int
    small_bytes: int
    fragments: int
    """Files of an eighth of the target or less."""
    gain: int
    """Files that compaction would save."""
    newest_at: float | None
    fingerprint: str
    """Changes whenever a small file comes, goes or is replaced."""

    @property
    def score(self) -> float:
        """100 when no file could be saved, towards 0 the more are superfluous."""
        return 100.0 if not self.file_count else 100.0 * (1 - self.gain / self.file_count)


@dataclass(frozen=True, slots=True)
class HealthPart:
    """One thing that keeps a score below 100, in points and in words."""

    name: str
    points: float
    """What it takes off the 100."""
    reason: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A score and what it is made of: 100 less the points of its parts."""

    parts: tuple[HealthPart, ...] = ()

    @property
    def score(self) -> float:
        """0 to 100."""
        return max(0.0, 100.0 - sum(part.points for part in self.parts))

    def explained(self) -> tuple[str, ...]:
        """The parts that cost something, the worst first."""
        worst = sorted(self.parts, key=lambda part: -part.points)
        return tuple(
            f"{part.name}: -{part.points:.1f} ({part.reason})" for part in worst if part.points
        )

    def to_dict(self) -> dict[str, Any]:
        """Score and parts as plain values."""
        parts = [
            {"name": part.name, "points": round(part.points, 1), "reason": part.reason}
            for part in self.parts
        ]
        return {"score": round(self.score, 1), "parts": parts}


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to run now, and why or why not."""

    run: bool
    reason: str


@dataclass(frozen=True, slots=True)
class DatasetHealth:
    """The sum over partitions."""

    partitions: int = 0
    file_count: int = 0
    total_bytes: int = 0
    small_files: int = 0
    gain: int = 0

    def plus(self, part: PartitionHealth) -> "DatasetHealth":
        """This with one more partition."""
        return DatasetHealth(
            self.partitions + 1,
            self.file_count + part.file_count,
            self.total_bytes + part.total_bytes,
            self.small_files + part.small_files,
            self.gain + part.gain,
        )

    @property
    def score(self) -> float:
        """As of a partition."""
        return 100.0 if not self.file_count else 100.0 * (1 - self.gain / self.file_count)
