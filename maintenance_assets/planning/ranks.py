"""Ids from a sample: as many rows fall below an id as the id says, whatever the values are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.clustering import ColumnRanks

Array = Any
Ids = Any  # numpy array


def ranks_of_sample(column: str, sample: Array, bits: int) -> ColumnRanks:
    """Ranks from a sample in plain form: `l` values below and `r` up to v give (l + r) / 2m.

    The middle of a value's mass, not its edge: a value that many rows have lands where its rows
    are, and a column of twelve values spreads over all ids. NaN ranks above every number, null
    above NaN.
    """
    numbers, nans, nulls = _sorted_out(sample)
    total = len(sample)
    scale = _Scale(total, 1 << bits)
    if not len(numbers):
        empty = np.array([], np.uint32)
        only = np.array([0], np.uint32)
        null = scale.id(2 * total - nulls)
        return ColumnRanks(column, numbers, empty, only, scale.id(nans), null)
    ordered = numbers.take(pc.sort_indices(numbers))
    first = _first_of_each(ordered)
    start = np.append(first, len(ordered)).astype(np.int64)
    at = scale.ids(start[:-1] + start[1:])
    below = scale.ids(2 * start)
    keep = (below[:-1] != at) | (at != below[1:])
    return ColumnRanks(
        column,
        ordered.take(pa.array(first[keep])),
        at[keep],
        np.append(below[:-1][keep], below[-1]),
        scale.id(2 * len(ordered) + nans),
        scale.id(2 * total - nulls),
    )


def ids_of(ranks: ColumnRanks, values: Array) -> Ids:
    """The id of each value in plain form."""
    if values.type != ranks.values.type:
        # A column that is missing here, or was everywhere in the sample: nothing but nulls.
        values = _same_kind(values, ranks)
    if pa.types.is_large_binary(values.type):
        encoded = values.dictionary_encode()
        found = _ids_of_valid(ranks, encoded.dictionary)
        nulls = np.uint32(ranks.null)
        indices = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        return np.append(found, nulls)[indices]
    ids = _ids_of_valid(ranks, values.fill_null(0) if values.null_count else values)
    if pa.types.is_floating(values.type):
        ids[pc.is_nan(values).fill_null(False).to_numpy(zero_copy_only=False)] = ranks.nan
    if values.null_count:
        ids[values.is_null().to_numpy(zero_copy_only=False)] = ranks.null
    return ids


def _same_kind(values: Array, ranks: ColumnRanks) -> Array:
    if values.null_count == len(values):
        return pa.nulls(len(values), ranks.values.type)
    if not len(ranks.values):
        return values
    return values.cast(ranks.values.type)


def _ids_of_valid(ranks: ColumnRanks, values: Array) -> Ids:
    if not len(ranks.values):
        return np.full(len(values), ranks.below[0], np.uint32)
    if pa.types.is_large_binary(values.type):
        left = pc.search_sorted(ranks.values, values, side="left").to_numpy()
        right = pc.search_sorted(ranks.values, values, side="right").to_numpy()
        equal = right > left
    else:
        numbers = values.to_numpy(zero_copy_only=False)
        known = ranks.values.to_numpy(zero_copy_only=False)
        left = np.searchsorted(known, numbers)
        equal = known[np.minimum(left, len(known) - 1)] == numbers
    ids = ranks.below[left]
    ids[equal] = ranks.at[left[equal]]
    return ids


class _Scale:
    """From doubled positions in the sample to ids."""

    def __init__(self, total: int, count: int) -> None:
        self._total, self._count = max(1, total), count

    def id(self, doubled: int) -> int:
        return min(self._count - 1, doubled * self._count // (2 * self._total))

    def ids(self, doubled: Any) -> Ids:
        found = doubled * self._count // (2 * self._total)
        return np.minimum(self._count - 1, found).astype(np.uint32)


def _sorted_out(sample: Array) -> tuple[Array, int, int]:
    """What has an order, how many NaN, how many nulls."""
    values = sample.drop_null()
    nulls = len(sample) - len(values)
    if not pa.types.is_floating(values.type):
        return values, 0, nulls
    numbers = values.filter(pc.invert(pc.is_nan(values)))
    return numbers, len(values) - len(numbers), nulls


def _first_of_each(ordered: Array) -> Any:
    """Where each distinct value begins."""
    if len(ordered) < 2:
        return np.arange(len(ordered))
    changes = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
    return np.append(0, np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1)
