"""From a listing to a judgement. Pure: no I/O, no clock."""

import hashlib
from collections.abc import Iterable, Sequence

from maintenance_assets.model.health import (
    DatasetHealth,
    Decision,
    HealthPolicy,
    PartitionHealth,
)
from maintenance_assets.planning.compaction import OWN_OUTPUT
from maintenance_assets.planning.packing import OWN_SMALL

MANY_FRAGMENTS = 12
"""So many tiny files are worth a run even while the partition is being written."""
Entry = tuple[str, int, str, float | None]
"""Name, size, version and time of a file."""


def measure_partition(
    partition: str, files: Sequence[Entry], policy: HealthPolicy
) -> PartitionHealth:
    """Count what compaction could do for one directory."""
    small = [file for file in files if _is_small(file, policy)]
    sizes = [size for _, size, _, _ in small]
    needed = max(1, -(-sum(sizes) // policy.target_bytes))
    times = [at for *_, at in files if at is not None]
    return PartitionHealth(
        partition=partition,
        file_count=len(files),
        total_bytes=sum(size for _, size, _, _ in files),
        small_files=len(small),
        small_bytes=sum(sizes),
        fragments=sum(8 * size <= policy.target_bytes for size in sizes),
        gain=max(0, len(small) - needed),
        newest_at=max(times, default=None),
        fingerprint=_fingerprint(small),
    )


def _is_small(file: Entry, policy: HealthPolicy) -> bool:
    """As the planner sees it: what it would leave alone is no debt."""
    path, size, _, _ = file
    own = OWN_OUTPUT.fullmatch(path.rpartition("/")[2]) is not None
    return size < policy.small_bytes and not (own and size >= OWN_SMALL * policy.target_bytes)


def _fingerprint(small: Iterable[Entry]) -> str:
    """Of the debt alone: files that need nothing come and go without making a new one."""
    digest = hashlib.sha256()
    for name, size, version, _ in sorted(small):
        # A name need not be UTF-8 on a local disk; Python reads such bytes as lone surrogates.
        digest.update(f"{name}|{size}|{version}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


def measure_dataset(parts: Iterable[PartitionHealth]) -> DatasetHealth:
    """The sum over partitions."""
    total = DatasetHealth()
    for part in parts:
        total = total.plus(part)
    return total


def debt_words(part: PartitionHealth | DatasetHealth) -> str:
    """What compaction could do, as it is said everywhere."""
    return f"{part.small_files} small files of {part.file_count}, {part.gain} could be saved"


def little_words(policy: HealthPolicy) -> str:
    """Why a small debt is left alone, as it is said everywhere."""
    return f"fewer than min_gain {policy.min_gain}"


def cooldown_words(policy: HealthPolicy) -> str:
    """How long a partition is left alone, as it is said everywhere."""
    return f"cooldown {policy.cooldown_seconds:.0f} s"


def decide(part: PartitionHealth, policy: HealthPolicy, now: float) -> Decision:
    """Whether this partition is worth a run now."""
    debt = debt_words(part)
    if part.gain < policy.min_gain:
        return Decision(False, f"{debt}, {little_words(policy)}")
    age = None if part.newest_at is None else now - part.newest_at
    # A time in the future is a clock that was wrong: do not wait for it.
    if age is None or age < 0 or age >= policy.cooldown_seconds:
        return Decision(True, debt)
    if part.fragments >= MANY_FRAGMENTS:
        return Decision(True, f"{debt}, {part.fragments} of them tiny")
    return Decision(False, f"{debt}, but written {age:.0f} s ago ({cooldown_words(policy)})")
