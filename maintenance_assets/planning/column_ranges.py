"""The ranges of columns that a footer knows."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange, FileSchema
from maintenance_assets.planning.orderable import find_path, is_orderable, orderable, type_at


def column_ranges(
    metadata: Any,
    schema: FileSchema,
    columns: Sequence[str],
    row_groups: Sequence[int] | None = None,
) -> tuple[ColumnRange, ...]:
    """What a footer says about those of the columns that the file has, or some row groups of it."""
    groups = range(metadata.num_row_groups) if row_groups is None else row_groups
    found = []
    for column in columns:
        path = find_path(schema.arrow, column)
        if path is None or column not in schema.leaf_paths:
            continue
        type_ = type_at(schema.arrow, path)
        if is_orderable(type_):
            leaf = schema.leaf_paths.index(column)
            chunks = [metadata.row_group(index) for index in groups]
            found.append(_range(chunks, leaf, column, type_))
    return tuple(found)


def _range(groups: Sequence[Any], leaf: int, column: str, type_: Any) -> ColumnRange:
    lows, highs = [], []
    for group in groups:
        statistics = group.column(leaf).statistics
        if statistics is None:
            return ColumnRange(column, None, None)
        if statistics.has_null_count and statistics.null_count == group.num_rows:
            continue
        bounds = _bounds(statistics, type_)
        if bounds is None:
            return ColumnRange(column, None, None)
        lows.append(bounds[0])
        highs.append(bounds[1])
    if not lows:
        return ColumnRange(column, None, None, all_null=True)
    return ColumnRange(column, _extreme(lows, 0), _extreme(highs, -1))


def _bounds(statistics: Any, type_: Any) -> tuple[Any, Any] | None:
    if not statistics.has_min_max:
        return None
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    plain = plain.storage_type if isinstance(plain, pa.BaseExtensionType) else plain
    try:
        bounds = pa.scalar(statistics.min, plain), pa.scalar(statistics.max, plain)
    # Text that is not UTF-8, or a type whose statistics pyarrow hands out as raw bytes.
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError, OverflowError):
        return None
    is_nan = pa.types.is_floating(plain) and any(b.as_py() != b.as_py() for b in bounds)
    return None if is_nan else bounds


def _extreme(values: list[Any], position: int) -> Any:
    order = pc.sort_indices(orderable(pa.array(values, values[0].type)))
    return values[order[position].as_py()]
