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
"""numpy, files x columns x 2: first and last id.

A file without any value in a column has first > last, where first is the id of its NaN or nulls;
one whose footer does not tell has UNKNOWN as its first.
"""
UNKNOWN = -1
_NOWHERE = 1 << 40
"""Where a file without rows is."""
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
        ids = ids_of(each, values)[_is_number(values)]
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
            bounds = (found.min(), found.max()) if len(found) else _no_value(ids[part].min())
            boxes[index, column] = bounds
    return boxes


def overlaps(grid: Grid, boxes: Boxes) -> tuple[ColumnOverlap, ...]:
    """For each column, how many files hold the value of a row, on average over rows."""
    found = []
    for column, ranks in enumerate(grid.ranks):
        mass = grid.mass[column]
        first, last = np.clip(boxes[:, column].T, 0, len(mass) - 2)
        has_values = boxes[:, column, 0] <= boxes[:, column, 1]
        depth = float(np.where(has_values, mass[last + 1] - mass[first], 0.0).sum())
        is_known = not (boxes[:, column, 0] == UNKNOWN).any()
        found.append(ColumnOverlap(ranks.column, depth, depth / max(1, len(boxes)), is_known))
    return tuple(found)


def touching(boxes: Boxes, others: Boxes) -> Any:
    """Which boxes meet any of the others in every column."""
    if not len(others):
        return np.zeros(len(boxes), bool)
    met = np.zeros(len(boxes), bool)
    # NaN and nulls are where their id is.
    first, last = boxes[:, :, 0], boxes.max(axis=2)
    for low, high in zip(others[:, :, 0], others.max(axis=2), strict=True):
        met |= ((first <= high) & (last >= low)).all(axis=1)
    return met


def _type_of(schema: pa.Schema, column: str) -> Any:
    """The type that all files together have, without a dictionary around it."""
    path = find_path(schema, column)
    return pa.null() if path is None else plain_type(type_at(schema, path))


def _box(
    ranks: ColumnRanks, found: ColumnRange | None, file: DataFile, type_: Any, last: int
) -> tuple[int, int]:
    unknown = UNKNOWN, last
    if not file.num_rows:
        return _NOWHERE, _NOWHERE - 1
    if found is None:
        # A column that the file does not have is null in all its rows.
        return unknown if file.has_column(ranks.column) else _no_value(ranks.null)
    if found.all_null:
        return _no_value(ranks.null)
    if found.numbers == ():
        return _no_value(ranks.nan)
    low, high = found.numbers or (found.low, found.high)
    if low is None or high is None:
        return unknown
    try:
        # Files may hold narrower types than all of them together.
        bounds = orderable(pa.array([low, high], low.type).cast(type_))
        first, final = ids_of(ranks, bounds)
    except (pa.ArrowException, TypeError):
        return unknown  # of a type that cannot be compared with the rest
    return int(first), int(final)


def _no_value(id_: Any) -> tuple[int, int]:
    return int(id_), int(id_) - 1


def _is_number(values: Array) -> Any:
    """What a look-up can ask for: neither null nor NaN."""
    valid = values.is_valid()
    if pa.types.is_floating(values.type):
        valid = pc.and_(valid, pc.invert(pc.is_nan(values)).fill_null(False))
    return valid.to_numpy(zero_copy_only=False)
