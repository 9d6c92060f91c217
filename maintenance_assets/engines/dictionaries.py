"""Dictionary columns: what merging can do to them that would make a file unreadable."""

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.dictionaries import has_dictionary as has_dictionary
from maintenance_assets.planning.dictionaries import has_nested_dictionary as has_nested_dictionary
from maintenance_assets.planning.dictionaries import (
    has_ordered_dictionary as has_ordered_dictionary,
)

_FEW_VALUES = 1024
"""Dictionaries up to this size are kept whole."""


def check_dictionaries(group: RewriteGroup, paths: Sequence[str], access: FileAccess) -> None:
    """Raise unless every dictionary column that was written can be read again."""
    nested = has_nested_dictionary(group.schema)
    if not _narrow_columns(group.schema) and not nested:
        return
    for path in paths:
        with access.open_input(path) as handle:
            parquet = pq.ParquetFile(handle)
            if nested:
                _check_row_groups(group, parquet)
            check_indices_of(parquet, group.schema)


def check_indices(schema: pa.Schema, paths: Sequence[str], access: FileAccess) -> None:
    """Raise unless the indices of every dictionary column that was written can count its values."""
    for path in paths if _narrow_columns(schema) else ():
        with access.open_input(path) as handle:
            check_indices_of(pq.ParquetFile(handle), schema)


def check_indices_of(parquet: pq.ParquetFile, schema: pa.Schema) -> None:
    """The same for an open file."""
    narrow = _narrow_columns(schema)
    for index in range(parquet.metadata.num_row_groups if narrow else 0):
        _check_indices(parquet, index, narrow)


def _narrow_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _has_narrow_dictionary(field.type)]


class OrderedCategories:
    """Watches ordered columns: their categories have to be the same in all files."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = {
            index: field.name
            for index, field in enumerate(schema)
            if pa.types.is_dictionary(field.type) and field.type.ordered
        }
        self._known: dict[int, Any] = {}
        self._lock = Lock()

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise where together the categories have no order."""
        for index, name in self._names.items():
            found = batch.column(index).dictionary
            with self._lock:
                longer, shorter = sorted((self._known.get(index, found), found), key=len)[::-1]
                self._known[index] = longer
            # One that only goes on where the other ends keeps the order of both.
            if not longer.slice(0, len(shorter)).equals(shorter):
                raise RewriteError(
                    f"the categories of the ordered column '{name}' differ "
                    "between files; together they have no order"
                )


def check_ordered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Pass batches on; raise where the categories of an ordered column are not always the same."""
    categories = OrderedCategories(schema)
    for batch in batches:
        categories.check(batch)
        yield batch


def written_form(array: Any, type_: Any) -> Any:
    """Rows of a larger batch in the type they are written in, without values of other rows."""
    if not pa.types.is_dictionary(array.type):
        return array
    if not pa.types.is_dictionary(type_):
        return array.dictionary_decode()
    if type_.ordered or len(array.dictionary) <= max(_FEW_VALUES, len(array)):
        return array
    used = pc.unique(array.indices).drop_null().sort()
    indices = pc.index_in(array.indices, used, skip_nulls=True).cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.take(used))


def with_own_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A slice of a larger batch without the dictionary values of the other rows."""
    if not has_dictionary(batch.schema):
        return batch
    columns = [written_form(column, column.type) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def as_written(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Parts of larger batches as one table, in the types they are written in."""
    if not has_dictionary(parts[0].schema):
        return pa.Table.from_arrays(pa.Table.from_batches(parts).columns, schema=schema)
    columns = []
    for index, field in enumerate(schema):
        arrays = [part.column(index) for part in parts]
        if pa.types.is_dictionary(field.type):
            arrays = [written_form(array, field.type) for array in arrays]
        whole = pa.chunked_array(arrays)
        # Codes that only travelled become values here, chunk by chunk.
        columns.append(whole if whole.type == field.type else whole.cast(field.type))
    return _unified(pa.Table.from_arrays(columns, schema=schema))


def _unified(table: pa.Table) -> pa.Table:
    """With one dictionary for each column, where its indices can count all values."""
    try:
        return table.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return table


def _check_row_groups(group: RewriteGroup, parquet: pq.ParquetFile) -> None:
    before = max(file.row_group_count for file in group.files)
    if before <= 1 < parquet.metadata.num_row_groups:
        raise RewriteError(
            "the group has a dictionary inside a nested column and is too large for one row group; "
            "PyArrow cannot read such a column over several. Use smaller targets."
        )


def _check_indices(parquet: pq.ParquetFile, index: int, columns: list[str]) -> None:
    """Merged dictionaries may outgrow a narrow index."""
    try:
        parquet.read_row_group(index, columns=columns)
    except pa.ArrowInvalid as error:
        raise RewriteError(
            f"together the files have more distinct values than the dictionary index of "
            f"{', '.join(columns)} can count ({error}). Write that column with a wider index."
        ) from error


def _has_narrow_dictionary(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return bool(type_.index_type.bit_width < 32)
    return any(_has_narrow_dictionary(type_.field(i).type) for i in range(type_.num_fields))
