"""Progress of long work, reported through a callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["discover", "sample", "scan", "execute", "publish", "measure"]
"""Footers read, partitions sampled, rows looked for, groups rewritten and made visible, and footers
read again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase has come; `total` is 0 while it is not known."""

    phase: Phase
    done: int
    total: int
    bytes_done: int = 0
    bytes_total: int = 0


ProgressCallback = Callable[[Progress], None]
