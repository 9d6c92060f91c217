"""Which files go together, and into how many outputs: pure arithmetic on sizes and rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from maintenance_assets.model.files import FileInfo
from maintenance_assets.model.policy import CompactionPolicy

F = TypeVar("F", bound=FileInfo)

SMALL = 0.75
OWN_SMALL = 0.5
"""The same for what we wrote: merged data compresses better than planned, and is left at that."""
OVERSIZED = 1.8
STRETCH = 1.1
"""An output may be this much larger than the target if that saves a file."""
WELL_FILLED = 0.95
MAX_OUTPUTS_PER_GROUP = 8


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes and rows of one or more files."""

    size_bytes: int = 0
    num_rows: int = 0

    def plus(self, file: FileInfo) -> "Load":
        """This load with one more file."""
        return Load(self.size_bytes + file.size_bytes, self.num_rows + file.num_rows)

    @classmethod
    def of(cls, files: Sequence[FileInfo]) -> "Load":
        """The load of several files together."""
        return cls(sum(f.size_bytes for f in files), sum(f.num_rows for f in files))


def fill(load: Load, policy: CompactionPolicy) -> float:
    """How full a single file would be; 1.0 is exactly the target."""
    by_bytes = load.size_bytes / policy.target_bytes if policy.target_bytes else 0.0
    by_rows = load.num_rows / policy.target_rows if policy.target_rows else 0.0
    return max(by_bytes, by_rows)


def smallest_fill(load: Load, policy: CompactionPolicy, outputs: int) -> float:
    """How full the smallest output would be: few rows do not divide evenly."""
    share = load.num_rows // outputs / load.num_rows if load.num_rows else 1 / outputs
    return fill(load, policy) * share


def output_count(load: Load, policy: CompactionPolicy) -> int:
    """How many files a load becomes: about the byte target each, never above the row bound."""
    by_bytes = _byte_outputs(load.size_bytes, policy.target_bytes) if policy.target_bytes else 1
    by_rows = -(-load.num_rows // policy.target_rows) if policy.target_rows else 1
    # A file cannot have fewer than one row, unless all are empty.
    return max(1, min(max(by_bytes, by_rows), load.num_rows))


def _byte_outputs(size_bytes: int, target_bytes: int) -> int:
    whole, rest = divmod(size_bytes, target_bytes)
    if rest == 0:
        return max(1, whole)
    # A small rest is spread over the whole files rather than becoming a small file again.
    if whole and rest <= SMALL * target_bytes and size_bytes < STRETCH * target_bytes * whole:
        return whole
    return whole + 1


def is_small(file: FileInfo, policy: CompactionPolicy, below: float = SMALL) -> bool:
    """Whether a file is well below the target."""
    return fill(Load.of([file]), policy) < below


def is_oversized(file: FileInfo, policy: CompactionPolicy) -> bool:
    """Whether a file is far above the byte target or at all above the row bound."""
    if output_count(Load.of([file]), policy) == 1:
        return False
    over_rows = policy.target_rows is not None and file.num_rows > policy.target_rows
    over_bytes = (
        policy.target_bytes is not None and file.size_bytes > OVERSIZED * policy.target_bytes
    )
    return over_rows or over_bytes


def split_evenly(rows: int, outputs: int) -> tuple[int, ...]:
    """Rows per output, differing by at most one."""
    each, extra = divmod(rows, outputs)
    return tuple(each + (1 if index < extra else 0) for index in range(outputs))


def pack(files: Sequence[F], policy: CompactionPolicy) -> list[tuple[F, ...]]:
    """Cut an ordered run of files into groups whose outputs come out well filled.

    A group closes as soon as its outputs would be close to the target. Only the last group of a
    run can leave small outputs, and there is nothing left to merge them with: so planning the
    result of a plan finds nothing more to do. Outputs are cut anywhere in a group, so files of
    0.6 targets pack as well as any others (five of them become three).
    """
    groups: list[tuple[F, ...]] = []
    current: list[F] = []
    load = Load()
    for file in files:
        current.append(file)
        load = load.plus(file)
        if _closes(load, policy):
            groups.append(tuple(current))
            current, load = [], Load()
    if current:
        groups.append(tuple(current))
    return groups


def _closes(load: Load, policy: CompactionPolicy) -> bool:
    outputs = output_count(load, policy)
    filled = smallest_fill(load, policy, outputs)
    return filled >= WELL_FILLED or (outputs >= MAX_OUTPUTS_PER_GROUP and filled >= SMALL)
