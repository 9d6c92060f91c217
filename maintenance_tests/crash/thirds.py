"""Repartition as the crash tests do it: by the remainder of the id."""

from pathlib import Path
from typing import Any

from maintenance_assets import RepartitionResult, repartition


def move_by_third(root: str | Path, *, beside: bool, **options: Any) -> RepartitionResult:
    """Into `moved` beside the dataset, or in place."""
    target = Path(root).parent / "moved" if beside else root
    return repartition(
        root,
        target,
        ["third"],
        derived={"third": "id % 3"},
        target_rows_per_file=20,
        max_workers=1,
        **options,
    )
