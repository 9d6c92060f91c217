"""Files whose bounds do not rule some values out, asked of the database."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, exists, or_

from maintenance_assets.catalog import tables as t


@dataclass(frozen=True, slots=True)
class KeyBound:
    """Values of a column that are asked for, in the form of stored bounds."""

    field_id: int
    ranges: tuple[tuple[bytes | None, bytes | None], ...]
    """Lowest and highest, either of them known; values may lie in any of these."""
    unlike: tuple[int, ...] = ()
    """Physical schemas whose bounds are of another form: nothing is known of their files."""


@dataclass(frozen=True, slots=True)
class KeyChoices:
    """At least one of these has to be met as a whole."""

    each: tuple[tuple["Bound", ...], ...]


Bound = KeyBound | KeyChoices


def not_outside(bound: Bound) -> Any:
    """The condition that a file is not ruled out; NULL rules nothing out."""
    if isinstance(bound, KeyChoices):
        return or_(*(and_(*map(not_outside, choice)) for choice in bound.each))
    stats = t.file_statistics.c
    ruled_out = exists().where(
        stats.dataset_id == t.file.c.dataset_id,
        stats.field_id == bound.field_id,
        stats.file_id == t.file.c.file_id,
        *(_outside(low, high) for low, high in bound.ranges),
    )
    kept = ~ruled_out
    return or_(kept, t.file.c.physical_id.in_(bound.unlike)) if bound.unlike else kept


def _outside(low: bytes | None, high: bytes | None) -> Any:
    stats = t.file_statistics.c
    below = [] if low is None else [stats.high < low]
    above = [] if high is None else [stats.low > high]
    return or_(*below, *above)
