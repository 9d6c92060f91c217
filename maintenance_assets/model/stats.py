"""The canonical figures of a maintenance operation."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MaintenanceStats:
    """Figures that are the same on every engine for the same work."""

    before_file_count: int
    after_file_count: int
    before_total_bytes: int
    after_total_bytes: int
    compacted_file_count: int
    rewritten_bytes: int
    compression_codec: str | None
    dry_run: bool
    zorder_columns: list[str] | None = None
    planned_groups: list[list[str]] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The canonical keys; `zorder_columns` and `planned_groups` only where they apply."""
        canonical: dict[str, Any] = {
            "before_file_count": self.before_file_count,
            "after_file_count": self.after_file_count,
            "before_total_bytes": self.before_total_bytes,
            "after_total_bytes": self.after_total_bytes,
            "compacted_file_count": self.compacted_file_count,
            "rewritten_bytes": self.rewritten_bytes,
            "compression_codec": self.compression_codec,
            "dry_run": self.dry_run,
        }
        if self.zorder_columns is not None:
            canonical["zorder_columns"] = list(self.zorder_columns)
        if self.planned_groups is not None:
            canonical["planned_groups"] = [list(group) for group in self.planned_groups]
        return canonical
