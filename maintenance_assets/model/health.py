"""How healthy a partition is, as far as a listing tells."""

from dataclasses import dataclass


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
