"""A seeded sample of a few columns: every file has its share, in whatever order they come."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.read_kernel import has_variable_width, open_parquet
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile
from maintenance_assets.planning.orderable import (
    find_path,
    orderable,
    orderable_column,
    type_at,
)

SAMPLE_ROWS = 128 * 1024
_ALL_ROWS = 2 * 1024 * 1024
"""Up to this many rows, every file is looked into; above, as many places as make about that."""
_LEAST_PLACES, _MOST_PLACES = 64, 1024
_SEED = 20251103
_READERS = 4
_BATCH_ROWS, _WIDE_BATCH_ROWS = 64 * 1024, 4 * 1024
"""Rows that are decoded at a time; fewer where values may be long."""
Array = Any


def key_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """These columns alone, nested ones in structs that have nothing else."""
    paths = [find_path(schema, column) for column in columns]
    return pa.schema(_pruned(list(schema), [path for path in paths if path is not None]))


def _pruned(fields: list[Any], paths: Sequence[tuple[str, ...]]) -> list[Any]:
    kept = []
    for field in fields:
        below = [path[1:] for path in paths if path[0] == field.name]
        if below and all(below):
            children = [field.type.field(i) for i in range(field.type.num_fields)]
            kept.append(field.with_type(pa.struct(_pruned(children, below))))
        elif below:
            kept.append(field)
    return kept


def key_columns(file: DataFile, columns: Sequence[str]) -> list[str]:
    """The columns among these that a file has, as its reader takes them."""
    return [column for column in columns if file.has_column(column)]


def null_columns(schema: pa.Schema, columns: Sequence[str], rows: int) -> list[Array]:
    """These columns in plain form for rows that have none of them.

    Not by way of a batch: where the schema has none of them either, that would have no rows.
    """
    paths = [find_path(schema, column) for column in columns]
    types = [pa.null() if path is None else type_at(schema, path) for path in paths]
    return [orderable(pa.nulls(rows, type_)) for type_ in types]


@dataclass(frozen=True, slots=True)
class _Draw:
    """Rows to take of a file: these, or as many as that from the row group of each."""

    file: DataFile
    places: Any
    rows_per_place: int
    seed: int


def sample_columns(
    files: Sequence[DataFile], schema: pa.Schema, columns: Sequence[str], access: FileAccess
) -> list[Array]:
    """Values of each column in plain form, for the same rows."""
    ordered = sorted(files, key=lambda file: file.path)
    wanted = key_schema(schema, columns)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="sample") as pool:
        draws = [draw for draw in _draws(ordered) if len(draw.places)]
        parts = list(pool.map(lambda draw: _sample_file(draw, wanted, columns, access), draws))
    if not parts:
        return [orderable_column(pa.RecordBatch.from_pylist([], wanted), c) for c in columns]
    return [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]


def _draws(files: Sequence[DataFile]) -> list[_Draw]:
    total = sum(file.num_rows for file in files)
    if total <= _ALL_ROWS:
        return [_Draw(file, _spread(file, total, n), 1, n) for n, file in enumerate(files)]
    groups = max(1, sum(file.row_group_count for file in files))
    count = min(_MOST_PLACES, max(_LEAST_PLACES, _ALL_ROWS * groups // total))
    anchors = (np.arange(count) * total + total // 2) // count
    starts = np.cumsum([0, *(file.num_rows for file in files)])
    owner = np.searchsorted(starts, anchors, side="right") - 1
    each = -(-SAMPLE_ROWS // count)
    return [_Draw(file, anchors[owner == n] - starts[n], each, n) for n, file in enumerate(files)]


def _spread(file: DataFile, total: int, seed: int) -> Any:
    """Rows of a file, as many as are due to it."""
    count = -(-SAMPLE_ROWS * file.num_rows // max(1, total))
    if count >= file.num_rows:
        return np.arange(file.num_rows)
    random = np.random.default_rng([_SEED, seed])
    return np.sort(random.choice(file.num_rows, count, replace=False))


def _sample_file(
    draw: _Draw, schema: pa.Schema, columns: Sequence[str], access: FileAccess
) -> list[Array]:
    try:
        parts = list(_read_places(draw, schema, columns, access))
    except (pa.ArrowException, OSError) as error:
        what = " ".join(str(error).split())
        raise RewriteError(
            f"'{draw.file.path}' cannot be read: {what}. Restore that file or move it away"
        ) from error
    return [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]


def _read_places(
    draw: _Draw, schema: pa.Schema, columns: Sequence[str], access: FileAccess
) -> Iterator[list[Array]]:
    random = np.random.default_rng([_SEED, draw.seed])
    with access.open_input(draw.file.path) as handle:
        parquet = open_parquet(handle, draw.file)
        groups = range(parquet.metadata.num_row_groups)
        sizes = [parquet.metadata.row_group(index).num_rows for index in groups]
        starts = np.cumsum([0, *sizes])
        owner = np.searchsorted(starts, draw.places, side="right") - 1
        for group in np.unique(owner):
            rows = draw.places[owner == group] - starts[group]
            if draw.rows_per_place > 1:
                count = min(sizes[group], len(rows) * draw.rows_per_place)
                rows = np.sort(random.choice(sizes[group], count, replace=False))
            yield from _read_rows(parquet, int(group), rows, draw.file, schema, columns)


def _read_rows(
    parquet: Any, group: int, rows: Any, file: DataFile, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[list[Array]]:
    """Some rows of a row group, in their order; never all of its values at once."""
    there = key_columns(file, columns)
    if not there:
        yield null_columns(schema, columns, len(rows))
        return
    at_a_time = _WIDE_BATCH_ROWS if has_variable_width(file, there) else _BATCH_ROWS
    start = 0
    for batch in parquet.iter_batches(at_a_time, row_groups=[group], columns=there):
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        if last > first:
            wanted = pa.array(rows[first:last] - start)
            plain = conform_batch(batch, schema, file.path)
            yield [orderable_column(plain, column).take(wanted) for column in columns]
        start += batch.num_rows
