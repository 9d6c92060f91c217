"""The user's function over batches of rows: polars or Arrow in and out, no type lost between."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.engines.conform import conform_array, conform_batch
from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.content_hash import value_hashes
from maintenance_assets.planning.fitting import as_stored, is_read_back, is_storable
from maintenance_assets.planning.schema_drift import widen

_NOT_IN_POLARS = (
    pa.types.is_decimal256,
    pa.types.is_interval,
    lambda type_: type_.id in (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW),
)

_REMEDY = "Annotate the parameter of transform_fn as pyarrow.Table to get one of those"


def wants_arrow(function: Callable[..., Any]) -> bool:
    """Whether a function asks for a pyarrow.Table by the annotation of its first parameter."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
        annotation = typing.get_type_hints(function).get(first.name, first.annotation)
    except (TypeError, ValueError, NameError, StopIteration):
        return False
    return annotation is pa.Table or annotation == "pa.Table" or annotation == "pyarrow.Table"


@dataclass(frozen=True)
class Transform:
    """A function, and the columns that it is given."""

    function: Callable[[Any], Any]
    schema: pa.Schema
    takes_arrow: bool

    @classmethod
    def of(cls, function: Callable[[Any], Any], schema: pa.Schema) -> "Transform":
        """Look at what the function asks for."""
        return cls(function, schema, wants_arrow(function))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What becomes of the rows; columns that keep their type keep it exactly."""
        table = pa.Table.from_batches([batch])
        given = table if self.takes_arrow else self._to_polars(table)
        try:
            returned = self.function(given)
        except Exception as error:
            # A user's function may raise anything; the rows are as they were.
            raise RewriteError(f"transform_fn raised {type(error).__name__}: {error}") from error
        return self._as_batch(returned, batch)

    def _to_polars(self, table: pa.Table) -> Any:
        import polars as pl

        try:
            _refuse_foreign(table.schema)
            return pl.DataFrame(pl.from_arrow(table))
        except pl.exceptions.PolarsError as error:
            raise RewriteError(_not_in_polars(table, error)) from error

    def _as_batch(self, returned: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        if isinstance(returned, pa.Table | pa.RecordBatch):
            return _storable(_one_batch(returned))
        if not _is_polars(returned):
            raise RewriteError(
                "transform_fn must return a polars.DataFrame or a pyarrow.Table, "
                f"got {type(returned).__name__}"
            )
        return _storable(self._restored(_one_batch(_to_arrow(returned)), batch))

    def _restored(self, found: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns of a type that polars has another one for get theirs back."""
        none = pa.Table.from_batches([batch.slice(0, 0)])
        in_polars = {field.name: field.type for field in self._to_polars(none).to_arrow().schema}
        arrays, fields = [], []
        for field, array in zip(found.schema, found.columns, strict=True):
            position = self.schema.get_field_index(field.name)
            if position >= 0 and field.type == in_polars.get(field.name):
                original = batch.column(field.name)
                self._require_faithful(field.name, original, field.type)
                array = _named(field.name, array, original)
                field = self.schema.field(position)
            arrays.append(array)
            fields.append(field)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _require_faithful(self, name: str, original: Any, there: Any) -> None:
        """Raise where the way into polars and back changes values."""
        if original.type == there or _only_wider(original.type, there):
            return
        table = pa.table([original], names=[name])
        back = _one_batch(self._to_polars(table).to_arrow()).column(0)
        try:
            again = _restore(back, original.type, original)
            same = np.array_equal(value_hashes(again), value_hashes(original))
        except (pa.ArrowException, ValueError):
            same = False
        if not same:
            raise RewriteError(
                f"polars cannot hold all values of column '{name}' ({original.type}). {_REMEDY}"
            )


def conformed(found: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the schema that the first one had; RewriteError names what does not fit."""
    if found.schema.equals(schema):
        return found
    missing = [name for name in schema.names if name not in found.schema.names]
    added = [name for name in found.schema.names if name not in schema.names]
    for names, what in ((missing, "without"), (added, "with")):
        if names:
            raise RewriteError(
                f"transform_fn returned a batch {what} column '{names[0]}', unlike the first one. "
                "It has to return the same columns for every batch"
            )
    for field in schema:
        given = found.schema.field(field.name).type
        if widen(field.type, given) != field.type:
            raise RewriteError(
                f"transform_fn returned column '{field.name}' as {given} after it had returned it "
                f"as {field.type}. It has to return the same types for every batch"
            )
    batch = conform_batch(found, schema, "what transform_fn returned")
    for field, array in zip(schema, batch.columns, strict=True):
        if not field.nullable and array.null_count:
            raise RewriteError(
                f"transform_fn returned nulls in column '{field.name}', which has to have values"
            )
    return batch


def _refuse_foreign(schema: pa.Schema) -> None:
    """Polars ends the thread rather than raise for some types."""
    for field in schema:
        if _is_foreign(field.type):
            raise RewriteError(
                f"polars has no type for column '{field.name}' ({field.type}). {_REMEDY}"
            )


def _not_in_polars(table: pa.Table, error: Exception) -> str:
    """Which column polars did not take."""
    import polars as pl

    for name in table.column_names:
        try:
            pl.from_arrow(table.select([name]))
        except pl.exceptions.PolarsError as why:
            type_ = table.schema.field(name).type
            return f"polars cannot hold column '{name}' ({type_}): {_first_line(why)}. {_REMEDY}"
    return f"polars cannot hold the rows: {_first_line(error)}. {_REMEDY}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _is_polars(value: Any) -> bool:
    import polars as pl

    return isinstance(value, pl.DataFrame)


def _is_foreign(type_: Any) -> bool:
    if any(belongs(type_) for belongs in _NOT_IN_POLARS):
        return True
    if pa.types.is_dictionary(type_):
        return _is_foreign(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return _is_foreign(type_.storage_type)
    if pa.types.is_map(type_):
        return _is_foreign(type_.key_type) or _is_foreign(type_.item_type)
    if pa.types.is_struct(type_) and not all(field.nullable for field in type_):
        return True  # where the struct is null, polars makes its fields null as well
    return any(_is_foreign(type_.field(i).type) for i in range(type_.num_fields))


def _only_wider(type_: Any, there: Any) -> bool:
    """Text and bytes with longer offsets are what they were."""
    return (type_, there) in (
        (pa.string(), pa.large_string()),
        (pa.string_view(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.binary_view(), pa.large_binary()),
    )


def _to_arrow(frame: Any) -> Any:
    try:
        return frame.to_arrow()
    except (pa.ArrowException, NotImplementedError) as error:
        raise RewriteError(_not_in_arrow(frame, error)) from error


def _not_in_arrow(frame: Any, error: Exception) -> str:
    """Which column Arrow did not take."""
    for name in frame.columns:
        try:
            frame.select(name).to_arrow()
        except (pa.ArrowException, NotImplementedError):
            return (
                f"transform_fn returned column '{name}' as {frame.schema[name]}, for which Arrow "
                "has no type. Cast it to another one"
            )
    return f"Arrow cannot hold what transform_fn returned: {_first_line(error)}"


def _storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in types that are read back as they are written; RewriteError names what is none."""
    arrays, fields = list(batch.columns), list(batch.schema)
    for index, (field, array) in enumerate(zip(fields, arrays, strict=True)):
        if batch.schema.names.count(field.name) > 1:
            raise RewriteError(
                f"transform_fn returned the column '{field.name}' more than once: rename one"
            )
        if not is_storable(field.type):
            raise RewriteError(
                f"transform_fn returned column '{field.name}' as {field.type}, which Parquet "
                "cannot hold. Cast it to another type"
            )
        if not is_read_back(field.type):
            try:
                arrays[index] = as_stored(array)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise RewriteError(
                    f"transform_fn returned column '{field.name}' as {field.type}, which Parquet "
                    f"would change: {error}. Cast it to another type"
                ) from error
            fields[index] = field.with_type(arrays[index].type)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _one_batch(table: Any) -> pa.RecordBatch:
    if isinstance(table, pa.RecordBatch):
        return table
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_pylist([], table.schema) if not batches else _joined(batches)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowException as error:
        raise RewriteError(f"the batch that transform_fn returned is too large: {error}") from error


def _named(name: str, array: Any, original: Any) -> Any:
    try:
        return _restore(array, original.type, original)
    except (pa.ArrowException, ValueError) as error:
        raise RewriteError(
            f"transform_fn returned values in column '{name}' that {original.type} cannot hold: "
            f"{error}"
        ) from error


def _restore(array: Any, type_: Any, original: Any) -> Any:
    """The same values in the type they had."""
    if array.type == type_:
        return array
    if pa.types.is_dictionary(type_):
        return _categories(array, type_, original)
    if isinstance(type_, pa.BaseExtensionType):
        storage = original.storage if original is not None else None
        inner = _restore(array, type_.storage_type, storage)
        return pa.ExtensionArray.from_storage(type_, inner)
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.binary()).cast(type_)
    return conform_array(array, type_)


def _categories(array: Any, type_: Any, original: Any) -> Any:
    """Codes into the categories there were, with new values behind them."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    plain = plain.cast(type_.value_type)
    known = original.dictionary
    fresh = plain.filter(pc.invert(pc.is_in(plain, known))).drop_null().unique()
    if len(fresh) and type_.ordered:
        raise ValueError(f"{fresh[0].as_py()!r} is none of the ordered categories")
    values = pa.concat_arrays([known, fresh]) if len(fresh) else known
    indices = pc.index_in(plain, values, skip_nulls=True).cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered)
