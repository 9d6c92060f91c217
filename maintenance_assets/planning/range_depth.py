"""How many files a look-up opens, from the ranges in their footers alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange, DataFile
from maintenance_assets.planning.orderable import orderable

Array = Any
SLACK = 2.0
"""So many times the depth of a perfect layout is still a good one."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The overlap of the files of one partition."""

    files: int
    columns: int
    depth: float
    """Files whose range holds a value, on average over the files and columns."""

    @property
    def share(self) -> float:
        """The same as a share of the files."""
        return self.depth / self.files if self.files else 0.0

    @property
    def ideal(self) -> float:
        """What a perfect layout by so many columns would have."""
        return float(self.files ** ((self.columns - 1) / self.columns))

    @property
    def excess(self) -> float:
        """0 for a good layout, 1 where every look-up opens every file."""
        good = SLACK * self.ideal
        if self.files <= good:
            return 0.0
        return min(1.0, max(0.0, (self.depth - good) / (self.files - good)))


def depth_of(files: Sequence[DataFile], columns: Sequence[str]) -> Depth | None:
    """The overlap by these columns; None where there is nothing to tell apart."""
    if not columns or len(files) < 2:
        return None
    found = [_column_depth(files, column) for column in columns]
    return Depth(len(files), len(columns), sum(found) / len(found))


def _column_depth(files: Sequence[DataFile], column: str) -> float:
    ranges = [_range_of(file, column) for file in files]
    bounded = [(f, r) for f, r in zip(files, ranges, strict=True) if r and _has_bounds(r)]
    unknown = sum(
        (r is None and f.has_column(column)) or (r is not None and not _says(r))
        for f, r in zip(files, ranges, strict=True)
    )
    numbers = _numbered([r for _, r in bounded])
    if numbers is None:
        return float(len(files))  # of types that cannot be compared
    lows, highs = numbers
    if not len(lows):
        return float(unknown)
    middles = (lows + highs) / 2
    inside = np.searchsorted(np.sort(lows), middles, "right") - np.searchsorted(
        np.sort(highs), middles, "left"
    )
    weights = np.array([max(1, file.num_rows) for file, _ in bounded])
    return float(np.average(inside, weights=weights)) + unknown


def _numbered(ranges: Sequence[ColumnRange]) -> tuple[Array, Array] | None:
    """Bounds as whole numbers in their order."""
    if not ranges:
        return np.empty(0), np.empty(0)
    bounds = [r.low for r in ranges] + [r.high for r in ranges]
    type_ = bounds[0].type
    try:
        plain = orderable(pa.array([b.cast(type_) for b in bounds], type_))
        ranks = pc.rank(plain, tiebreaker="dense").to_numpy()
    except (pa.ArrowException, TypeError):
        return None
    return ranks[: len(ranges)], ranks[len(ranges) :]


def _range_of(file: DataFile, column: str) -> ColumnRange | None:
    return next((found for found in file.ranges if found.column == column), None)


def _has_bounds(found: ColumnRange) -> bool:
    return found.low is not None and found.high is not None


def _says(found: ColumnRange) -> bool:
    return found.all_null or _has_bounds(found)
