"""How many files a look-up of one value has to open, in the ids of a sample.

Ranges of files come from footers and are widened to whole ids. What is there, what is predicted
and what was written are measured alike, so the three can be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.clustering import Clustering, ColumnOverlap, ColumnRanks
from maintenance_assets.model.files import ColumnRange, DataFile
from maintenance_assets.planning.clustering import cells_of_values
from maintenance_assets.planning.orderable import find_path, orderable, plain_type, type_at
from maintenance_assets.planning.ranks import ids_of, ranks_of_sample

Array = Any
Boxes = Any
"""numpy, files x columns x 2: first and last id; first > last where a file has no value."""
_NOTHING = (1, 0)
_GRID_BITS = 12


@dataclass(frozen=True, slots=True)
class Grid:
    """The ids of a partition, and the share of its rows up to each id, column by column."""

    ranks: tuple[ColumnRanks, ...]
    mass: tuple[Any, ...]


def make_grid(columns: Sequence[str], sample: Sequence[Array]) -> Grid:
    """The grid of a sample: much finer than what files are cut by."""
    ranks = [ranks_of_sample(c, v, _GRID_BITS) for c, v in zip(columns, sample, strict=True)]
    mass = []
    for each, values in zip(ranks, sample, strict=True):
        ids = ids_of(each, _numbers(values))
        found = np.bincount(ids, minlength=1 << _GRID_BITS).astype(np.float64)
        mass.append(np.append(0.0, np.cumsum(found) / max(1, len(ids))))
    return Grid(tuple(ranks), tuple(mass))


def boxes_of_files(grid: Grid, files: Sequence[DataFile], schema: pa.Schema) -> Boxes:
    """The ids that each file reaches over, by its footer; everything where that is silent."""
    boxes = np.empty((len(files), len(grid.ranks), 2), np.int64)
    types = [_type_of(schema, ranks.column) for ranks in grid.ranks]
    for index, file in enumerate(files):
        known = {found.column: found for found in file.ranges}
        for column, (ranks, type_) in enumerate(zip(grid.ranks, types, strict=True)):
            last = len(grid.mass[column]) - 2
            boxes[index, column] = _box(ranks, known.get(ranks.column), file, type_, last)
    return boxes


def predicted_boxes(
    grid: Grid, clustering: Clustering, sample: Sequence[Array], outputs: int
) -> Boxes:
    """The ids that outputs will reach over, if rows are as the sample."""
    cells = cells_of_values(clustering, sample)
    order = np.argsort(cells, kind="stable")
    parts = [part for part in np.array_split(order, outputs) if len(part)]
    boxes = np.empty((len(parts), len(grid.ranks), 2), np.int64)
    for column, (ranks, values) in enumerate(zip(grid.ranks, sample, strict=True)):
        ids, valid = ids_of(ranks, values), _is_number(values)
        for index, part in enumerate(parts):
            found = ids[part][valid[part]]
            boxes[index, column] = (found.min(), found.max()) if len(found) else _NOTHING
    return boxes


def overlaps(grid: Grid, boxes: Boxes) -> tuple[ColumnOverlap, ...]:
    """For each column, how many files hold the value of a row, on average over rows."""
    found = []
    for column, ranks in enumerate(grid.ranks):
        mass = grid.mass[column]
        first, last = boxes[:, column, 0], boxes[:, column, 1]
        inside = np.where(first <= last, mass[last + 1] - mass[np.minimum(first, last + 1)], 0.0)
        depth = float(inside.sum())
        found.append(ColumnOverlap(ranks.column, depth, depth / max(1, len(boxes))))
    return tuple(found)


def touching(boxes: Boxes, others: Boxes) -> Any:
    """Which boxes meet any of the others in every column."""
    if not len(others):
        return np.zeros(len(boxes), bool)
    met = np.zeros(len(boxes), bool)
    for other in others:
        apart = (boxes[:, :, 0] > other[None, :, 1]) | (boxes[:, :, 1] < other[None, :, 0])
        # A file without any value in a column holds nulls: those may be everywhere.
        empty = (boxes[:, :, 0] > boxes[:, :, 1]) | (other[None, :, 0] > other[None, :, 1])
        met |= ~(apart & ~empty).any(axis=1)
    return met


def _type_of(schema: pa.Schema, column: str) -> Any:
    """The type that all files together have, without a dictionary around it."""
    path = find_path(schema, column)
    return pa.null() if path is None else plain_type(type_at(schema, path))


def _box(
    ranks: ColumnRanks, found: ColumnRange | None, file: DataFile, type_: Any, last: int
) -> tuple[int, int]:
    everything = 0, last
    if found is None:
        # A column that the file does not have is null in all its rows.
        return everything if file.has_column(ranks.column) else _NOTHING
    if found.all_null:
        return _NOTHING
    if found.low is None or found.high is None:
        return everything
    try:
        # Files may hold narrower types than all of them together.
        bounds = orderable(pa.array([found.low, found.high], found.low.type).cast(type_))
        first, final = ids_of(ranks, bounds)
    except (pa.ArrowException, TypeError):
        return everything  # of a type that cannot be compared with the rest
    return int(first), int(final)


def _numbers(values: Array) -> Array:
    return values.filter(pa.array(_is_number(values)))


def _is_number(values: Array) -> Any:
    """What a look-up can ask for: neither null nor NaN."""
    valid = values.is_valid()
    if pa.types.is_floating(values.type):
        valid = pc.and_(valid, pc.invert(pc.is_nan(values)).fill_null(False))
    return valid.to_numpy(zero_copy_only=False)
