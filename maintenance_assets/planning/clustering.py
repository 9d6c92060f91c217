"""From values to cells of a curve, and from cells to the file that each row belongs to.

A key is cut down to its leading bits, the cell. Cells are counted first, in two steps, so that the
counts stay small whatever the number of rows: how many rows each stretch of the curve has, and then
file by file the cells of those stretches that outputs begin in. There the curve is cut where each
output has exactly its rows. Rows of one cell keep the order they have in the dataset (files by
name, rows as they come), so a cut inside a cell is exact as well, however many rows share a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np

from maintenance_assets.model.clustering import Clustering, Curve
from maintenance_assets.planning.curves import curve_keys
from maintenance_assets.planning.orderable import orderable_column
from maintenance_assets.planning.ranks import ids_of, ranks_of_sample

Array = Any
Cells = Any  # numpy array of uint32
_LEAST_BITS, _MOST_BITS = 6, 16
_SPARE_BITS = 3
"""Ids per column beyond what tells row groups apart."""
_CELL_SPARE_BITS = 8
_MOST_CELL_BITS = 26
"""How exactly rows are placed: a few hundred cells per row group."""
_MOST_PER_COUNT = 16
"""Cells up to the last one for each that is counted: an array of them all is sooner made than a
sort, but of a long curve it would be hundreds of megabytes for each file."""
_STRETCH_SPARE_BITS = 6
_MOST_STRETCH_BITS = 18
"""Stretches for each output: the fewer, the more cells have to be counted file by file."""


def bits_per_column(columns: int, row_groups: int) -> int:
    """How finely each column is told apart, so that the curve is finer than the row groups."""
    wanted = ceil(log2(max(1, row_groups)) / columns) + _SPARE_BITS
    return min(max(wanted, _LEAST_BITS), _MOST_BITS, 63 // columns)


def make_clustering(
    columns: Sequence[str],
    sample: Sequence[Array],
    curve: Curve,
    row_groups: int,
    row_group_rows: int,
) -> Clustering:
    """The layout for a sample: one array in plain form for each column."""
    bits = bits_per_column(len(columns), row_groups)
    counted = ceil(log2(max(1, row_groups))) + _CELL_SPARE_BITS
    return Clustering(
        columns=tuple(columns),
        curve=curve,
        bits=bits,
        cell_bits=min(bits * len(columns), counted, _MOST_CELL_BITS),
        ranks=tuple(
            ranks_of_sample(column, values, bits)
            for column, values in zip(columns, sample, strict=True)
        ),
        row_group_rows=row_group_rows,
    )


def cells_of(clustering: Clustering, batch: Any) -> Cells:
    """The cell of each row of a batch in the schema of the plan."""
    return cells_of_values(clustering, [orderable_column(batch, c) for c in clustering.columns])


def cells_of_values(clustering: Clustering, values: Sequence[Array]) -> Cells:
    """The same for columns in plain form."""
    pairs = zip(clustering.ranks, values, strict=True)
    keys = curve_keys(
        [ids_of(ranks, column) for ranks, column in pairs], clustering.bits, clustering.curve
    )
    shift = clustering.bits * len(clustering.columns) - clustering.cell_bits
    return (keys >> np.uint64(shift)).astype(np.uint32)


@dataclass(frozen=True, slots=True)
class CellCounts:
    """How many rows a file has in each cell that occurs in it."""

    cells: Cells
    counts: Any

    @classmethod
    def of(cls, cells: Cells) -> "CellCounts":
        """Count the cells of some rows."""
        return cls(*np.unique(cells, return_counts=True))

    @classmethod
    def total(cls, parts: Sequence["CellCounts"]) -> "CellCounts":
        """The sum of several counts."""
        if not parts:
            return cls(np.array([], np.uint32), np.array([], np.int64))
        if len(parts) == 1:
            return parts[0]
        cells = np.concatenate([part.cells for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        # Floats, but of counts: exact far beyond any number of rows.
        if len(cells) * _MOST_PER_COUNT <= cells.max(initial=0):
            found, where = np.unique(cells, return_inverse=True)
            return cls(found, np.bincount(where, counts).astype(np.int64))
        sums = np.bincount(cells, counts)
        found = np.flatnonzero(sums)
        return cls(found.astype(np.uint32), sums[found].astype(np.int64))

    @property
    def rows(self) -> int:
        """All rows."""
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class Stretches:
    """How many rows stretches of the curve have, and which of them are counted by cells."""

    shift: int
    """Bits of a cell that say where in its stretch it is."""
    counts: Any
    crossed: Any
    """numpy, one truth value per stretch: whether an output begins in it."""

    @classmethod
    def whole(cls, clustering: Clustering, rows: int) -> "Stretches":
        """The curve as a single stretch: every cell is counted."""
        return cls(clustering.cell_bits, np.array([rows]), np.array([True]))

    @property
    def rows(self) -> int:
        """All rows."""
        return int(self.counts.sum())

    def within(self, cells: Cells) -> Cells:
        """Those of the cells that are to be counted."""
        return cells[self.crossed[cells >> np.uint32(self.shift)]]


class StretchCounter:
    """Counts the rows of each stretch of the curve."""

    def __init__(self, cell_bits: int, outputs: int) -> None:
        bits = min(cell_bits, outputs.bit_length() + _STRETCH_SPARE_BITS, _MOST_STRETCH_BITS)
        self._shift = cell_bits - bits
        self._counts: Any = np.zeros(1 << bits, np.int64)

    def add(self, cells: Cells) -> None:
        """Count the cells of some rows."""
        self.add_counts(*self.numbers(cells))

    def numbers(self, cells: Cells) -> tuple[Any, Any]:
        """The stretches of some rows, and how many are in each."""
        found, counts = np.unique(cells >> np.uint32(self._shift), return_counts=True)
        return found, counts

    def add_counts(self, stretches: Any, counts: Any) -> None:
        """Add what was counted elsewhere."""
        self._counts[stretches] += counts

    def counts(self) -> tuple[Any, Any]:
        """The stretches that have rows, and how many."""
        found = np.flatnonzero(self._counts)
        return found, self._counts[found]

    def stretches(self, output_rows: Sequence[int]) -> Stretches:
        """The stretches, for outputs of so many rows."""
        crossed = np.zeros(len(self._counts), bool)
        ends = np.cumsum(self._counts)
        crossed[np.searchsorted(ends, _positions(output_rows), side="right")] = True
        return Stretches(self._shift, self._counts, crossed)


def _positions(output_rows: Sequence[int]) -> Any:
    """How many rows come before each output but the first."""
    return np.cumsum(np.asarray(output_rows, np.int64))[:-1]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where outputs begin (all but the first): a cell, and how many of its rows come before."""

    cells: Cells
    offsets: Any


def cut(stretches: Stretches, within: CellCounts, output_rows: Sequence[int]) -> Cuts:
    """Cut the curve so that every output has exactly its rows."""
    if sum(output_rows) != stretches.rows:
        raise ValueError(f"{stretches.rows} rows cannot be cut into {sum(output_rows)}")
    crossed = np.flatnonzero(stretches.crossed)
    owner = np.searchsorted(crossed, within.cells >> np.uint32(stretches.shift))
    expected = stretches.counts[crossed]
    if not np.array_equal(np.bincount(owner, within.counts, len(crossed)), expected):
        raise ValueError("stretches and cells were not counted over the same rows")
    # Where a stretch begins, all rows before it count, not only those of other crossed ones.
    before = (np.cumsum(stretches.counts) - stretches.counts)[crossed]
    missing = before - (np.cumsum(expected) - expected)
    ends = np.cumsum(within.counts) + missing[owner]
    positions = _positions(output_rows)
    index = np.searchsorted(ends, positions, side="right")
    return Cuts(within.cells[index], positions - (ends - within.counts)[index])


@dataclass(frozen=True, slots=True)
class Starts:
    """Rows of cut cells that lie in the files before one: only of cells that it has itself."""

    cuts: Any
    """The first cut in each such cell."""
    rows: Any


def starts_of_files(cuts: Cuts, counts: Sequence[CellCounts]) -> list[Starts]:
    """What each file needs to know of the files before it."""
    before = np.zeros(len(cuts.cells), np.int64)
    starts = []
    for part in counts:
        first: Any = np.searchsorted(cuts.cells, part.cells, side="left")
        # Behind all cuts there is nothing to compare with: no cell is this large.
        is_cut = np.append(cuts.cells, np.uint32(0xFFFFFFFF))[first] == part.cells
        found = first[is_cut]
        starts.append(Starts(found, before[found]))
        before[found] += part.counts[is_cut]
    return starts


class Router:
    """Says which output each row of a file goes to; batches must come in their order."""

    def __init__(self, cuts: Cuts, starts: Starts) -> None:
        self._cuts = cuts
        self._seen: Any = np.zeros(len(cuts.cells), np.int64)
        self._seen[starts.cuts] = starts.rows

    def route(self, cells: Cells) -> Any:
        """The output of each row of the next batch."""
        cuts = self._cuts
        first: Any = np.searchsorted(cuts.cells, cells, side="left")
        outputs: Any = first.astype(np.int32)
        if not len(cuts.cells):
            return outputs
        shared = np.flatnonzero(cuts.cells[np.minimum(first, len(cuts.cells) - 1)] == cells)
        if len(shared):
            outputs[shared] += self._beyond(first[shared])
        return outputs

    def _beyond(self, first: Any) -> Any:
        """How many cuts inside their own cell lie before these rows."""
        order = np.argsort(first, kind="stable")
        ordered = first[order]
        begin = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        lengths = np.diff(np.append(begin, len(ordered)))
        nth = np.arange(len(ordered)) - np.repeat(begin, lengths)
        passed = np.empty(len(ordered), np.int32)
        for start, length in zip(begin, lengths, strict=True):
            index = ordered[start]
            rows = slice(start, start + length)
            last = np.searchsorted(self._cuts.cells, self._cuts.cells[index], side="right")
            rank = self._seen[index] + nth[rows]
            passed[rows] = np.searchsorted(self._cuts.offsets[index:last], rank, side="right")
            self._seen[index] += length
        found = np.empty(len(ordered), np.int32)
        found[order] = passed
        return found
