"""Progress of long work, reported through a callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from maintenance_assets.model.words import size_words, time_words

Phase = Literal["discover", "sample", "scan", "execute", "publish", "measure"]
"""Footers read, partitions sampled, rows looked for, groups rewritten and made visible, and footers
read again."""

_COUNTED: dict[Phase, str] = {
    "discover": "files",
    "sample": "partitions",
    "scan": "files",
    "execute": "groups",
    "publish": "groups",
    "measure": "files",
}


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

    def describe(self, elapsed_seconds: float) -> str:
        """How far it is and how long the rest will take, as it went until now."""
        if not self.total:
            return f"{self.phase}: {self.done} {_COUNTED[self.phase]}"
        text = f"{self.phase}: {self.done} of {self.total} {_COUNTED[self.phase]}"
        if self.bytes_total:
            text += f", {self.size_words()}"
        share = self.bytes_done / self.bytes_total if self.bytes_total else self.done / self.total
        if 0 < share < 1 and elapsed_seconds > 0:
            text += f", about {time_words(elapsed_seconds * (1 - share) / share)} left"
        return text


ProgressCallback = Callable[[Progress], None]
