"""Progress of long work, reported through a callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from maintenance_assets.model.words import size_words

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

    def size_words(self) -> str:
        """Bytes done of all, in words; empty where they are not counted."""
        if not self.bytes_total:
            return ""
        return f"{size_words(self.bytes_done)} of {size_words(self.bytes_total)}"


ProgressCallback = Callable[[Progress], None]
