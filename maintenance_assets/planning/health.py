"""From a listing to a judgement. Pure: no I/O, no clock."""

import hashlib
from collections.abc import Iterable, Sequence

from maintenance_assets.model.health import (
    DatasetHealth,
    Decision,
    HealthPolicy,
    PartitionHealth,
)

MANY_FRAGMENTS = 12
"""So many tiny files are worth a run even while the partition is being written."""
Entry = tuple[str, int, str, float | None]
"""Name, size, version and time of a file."""


def measure_partition(
    partition: str, files: Sequence[Entry], policy: HealthPolicy
) -> PartitionHealth:
    """Count what compaction could do for one directory."""
    small = [size for _, size, _, _ in files if size < policy.small_bytes]
    needed = -(-sum(small) // policy.target_bytes) if small else 0
    times = [at for *_, at in files if at is not None]
    digest = hashlib.sha256()
    for name, size, version, _ in sorted(files):
        digest.update(f"{name}|{size}|{version}\n".encode())
    return PartitionHealth(
        partition=partition,
        file_count=len(files),
        total_bytes=sum(size for _, size, _, _ in files),
        small_files=len(small),
        small_bytes=sum(small),
        fragments=sum(8 * size <= policy.target_bytes for size in small),
        gain=max(0, len(small) - max(1, needed)) if small else 0,
        newest_at=max(times, default=None),
        fingerprint=digest.hexdigest()[:16],
    )


def measure_dataset(parts: Iterable[PartitionHealth]) -> DatasetHealth:
    """The sum over partitions."""
    total = DatasetHealth()
    for part in parts:
        total = total.plus(part)
    return total


def decide(part: PartitionHealth, policy: HealthPolicy, now: float) -> Decision:
    """Whether this partition is worth a run now."""
    debt = f"{part.small_files} small files of {part.file_count}, {part.gain} could be saved"
    if part.gain < policy.min_gain:
        return Decision(False, f"{debt}, fewer than min_gain {policy.min_gain}")
    age = None if part.newest_at is None else now - part.newest_at
    if age is None or age >= policy.cooldown_seconds:
        return Decision(True, debt)
    if part.fragments >= MANY_FRAGMENTS:
        return Decision(True, f"{debt}, {part.fragments} of them tiny")
    return Decision(
        False, f"{debt}, but written {age:.0f} s ago (cooldown {policy.cooldown_seconds:.0f} s)"
    )
