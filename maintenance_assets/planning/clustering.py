"""From values to cells of a curve, and from cells to the file that each row belongs to.

A key is cut down to its leading bits, the cell. Cells are counted first, file by file; then the
curve is cut where each output has exactly its rows. Rows of one cell keep the order they have in
the dataset (files by name, rows as they come), so a cut inside a cell is exact as well, however
many rows share a value.
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
"""What is counted: a few hundred cells per row group, and never more than fit in memory."""


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
        cells = np.concatenate([part.cells for part in parts])
        # Floats, but of counts: exact far beyond any number of rows.
        sums = np.bincount(cells, np.concatenate([part.counts for part in parts]))
        found = np.flatnonzero(sums)
        return cls(found.astype(np.uint32), sums[found].astype(np.int64))

    @property
    def rows(self) -> int:
        """All rows."""
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where outputs begin (all but the first): a cell, and how many of its rows come before."""

    cells: Cells
    offsets: Any


def cut(total: CellCounts, output_rows: Sequence[int]) -> Cuts:
    """Cut the curve so that every output has exactly its rows."""
    if sum(output_rows) != total.rows:
        raise ValueError(f"{total.rows} rows cannot be cut into {sum(output_rows)}")
    ends = np.cumsum(total.counts)
    positions = np.cumsum(np.asarray(output_rows, np.int64))[:-1]
    index = np.searchsorted(ends, positions, side="right")
    starts = ends - total.counts
    return Cuts(total.cells[index], positions - starts[index])


def starts_of_files(cuts: Cuts, counts: Sequence[CellCounts]) -> list[Any]:
    """For each file: how many rows of each cut cell lie in the files before it."""
    before = np.zeros(len(cuts.cells), np.int64)
    starts = []
    for part in counts:
        starts.append(before)
        before = before + _counts_at(part, cuts.cells)
    return starts


def _counts_at(part: CellCounts, cells: Cells) -> Any:
    if not len(part.cells):
        return np.zeros(len(cells), np.int64)
    index = np.minimum(np.searchsorted(part.cells, cells), len(part.cells) - 1)
    return np.where(part.cells[index] == cells, part.counts[index], 0)


class Router:
    """Says which output each row of a file goes to; batches must come in their order."""

    def __init__(self, cuts: Cuts, starts: Any) -> None:
        self._cuts = cuts
        self._seen: Any = np.array(starts, np.int64)

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
