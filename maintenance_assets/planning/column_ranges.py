"""The ranges of columns that a footer knows."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange, FileSchema
from maintenance_assets.planning.orderable import (
    Leaf,
    is_orderable,
    leaf_count,
    leaf_of,
    orderable,
    plain_type,
)

_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_UNREADABLE = (pa.ArrowException, NotImplementedError, TypeError, ValueError, OverflowError)
"""Text that is not UTF-8, or a type whose statistics pyarrow hands out as raw bytes."""


def column_ranges(
    metadata: Any,
    schema: FileSchema,
    columns: Sequence[str],
    row_groups: Sequence[int] | None = None,
) -> tuple[ColumnRange, ...]:
    """What a footer says about those of the columns that the file has, or some row groups of it.

    Nothing about a name that several columns have. NaN is never part of a range.
    """
    groups = range(metadata.num_row_groups) if row_groups is None else row_groups
    leaves_nan_out = _leaves_nan_out(metadata)
    found = []
    for column in columns:
        leaf = _leaf(schema, column)
        if leaf is not None and is_orderable(leaf.type):
            chunks = [metadata.row_group(index) for index in groups]
            stored = schema.leaves[leaf.index]
            found.append(_range(chunks, leaf, column, stored, leaves_nan_out))
    return tuple(found)


@lru_cache(maxsize=4096)
def _leaf(schema: FileSchema, column: str) -> Leaf | None:
    # By position: the dotted path of one column may be the plain name of another.
    if leaf_count(schema.arrow) != len(schema.leaf_paths):
        return None
    return leaf_of(schema.arrow, column)


def _leaves_nan_out(metadata: Any) -> bool:
    """Whether floats without bounds are all NaN: other writers tell none as soon as one is."""
    try:
        return (metadata.created_by or "").startswith("parquet-cpp-arrow ")
    except UnicodeDecodeError:
        return False


def _range(
    groups: Sequence[Any], leaf: Leaf, column: str, stored: str, leaves_nan_out: bool
) -> ColumnRange:
    type_ = plain_type(leaf.type)
    may_be_nan = leaves_nan_out and pa.types.is_floating(type_)
    has_nan_alone = False
    lows, highs = [], []
    for group in groups:
        statistics = group.column(leaf.index).statistics
        if statistics is None:
            return ColumnRange(column, None, None)
        if statistics.has_null_count and statistics.null_count == group.num_rows:
            continue
        if may_be_nan and not statistics.has_min_max:
            has_nan_alone = True
            continue
        bounds = _bounds(statistics, type_, stored)
        if bounds is None:
            return ColumnRange(column, None, None)
        lows.append(bounds[0])
        highs.append(bounds[1])
    if has_nan_alone:
        numbers = (_extreme(lows, 0), _extreme(highs, -1)) if lows else ()
        return ColumnRange(column, None, None, numbers=numbers)
    if not lows:
        return ColumnRange(column, None, None, all_null=True)
    return ColumnRange(column, _extreme(lows, 0), _extreme(highs, -1))


def _bounds(statistics: Any, type_: Any, stored: str) -> tuple[Any, Any] | None:
    if not statistics.has_min_max:
        return None
    try:
        if pa.types.is_float16(type_):
            found = [_half(raw) for raw in (statistics.min_raw, statistics.max_raw)]
        elif pa.types.is_date32(type_) or pa.types.is_time(type_) or pa.types.is_timestamp(type_):
            if not _is_stored_as(type_, stored):
                return None
            found = [_moment(raw, type_) for raw in (statistics.min_raw, statistics.max_raw)]
        else:
            found = [pa.scalar(value, type_) for value in (statistics.min, statistics.max)]
    except _UNREADABLE:
        return None
    is_nan = pa.types.is_floating(type_) and any(b.as_py() != b.as_py() for b in found)
    return None if is_nan else (found[0], found[1])


def _half(raw: bytes) -> Any:
    return pa.scalar(np.frombuffer(raw, "<f2")[0], pa.float16())


def _is_stored_as(type_: Any, stored: str) -> bool:
    """Whether raw statistics count in the unit of the type."""
    return pa.types.is_date32(type_) or f"timeUnit={_UNITS.get(type_.unit)}" in stored


def _moment(raw: int, type_: Any) -> Any:
    """From the stored number: Python's own types end at microseconds and at the year 9999."""
    number = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array([raw], number).view(type_)[0]


def _extreme(values: list[Any], position: int) -> Any:
    order = pc.sort_indices(orderable(pa.array(values, values[0].type)))
    return values[order[position].as_py()]
