"""Bring a batch to the schema of the plan without changing a value."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.errors import RewriteError, SchemaMismatchError
from maintenance_assets.planning.fitting import is_list_view, list_of_view
from maintenance_assets.planning.polars_marks import require_listed


def conform_new(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """New data in the types it is written in; SchemaMismatchError where a value does not fit."""
    try:
        fitted = conform_batch(batch, schema, "the data")
    except RewriteError as error:
        raise SchemaMismatchError(str(error)) from error
    for number, wanted in enumerate(schema):
        if not wanted.nullable and fitted.column(number).null_count:
            raise SchemaMismatchError(f"column '{wanted.name}' must not be null, and the data is")
        try:
            require_listed(fitted.column(number), wanted)
        except ValueError as error:
            raise SchemaMismatchError(str(error)) from error
    return fitted


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    """The batch with exactly the columns and types of `schema`; missing columns are null."""
    arrays = []
    for field in schema:
        index = _index(batch.schema.names, field.name)
        if index is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            arrays.append(conform_array(batch.column(index), field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise RewriteError(
                f"column '{field.name}' of '{path}' cannot be turned from "
                f"{batch.column(index).type} into {field.type} without loss: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _index(names: list[str], name: str) -> int | None:
    """Where a name is; None only where it surely is not."""
    if names.count(name) > 1:
        raise RewriteError(f"the name '{name}' occurs more than once: its values cannot be told")
    return names.index(name) if name in names else None


def conform_array(array: Any, target: Any) -> Any:
    """The same values in another type of the widening table."""
    # Equal types are never cast: pyarrow's cast can break nested null children.
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(array.type):
        return _conform_dictionary(array, target)
    if pa.types.is_struct(target):
        return _checked(_conform_struct(array, target))
    if pa.types.is_map(target):
        return _checked(_conform_map(_compacted(array), target))
    if is_list_view(array.type):
        return conform_array(list_of_view(array), target)
    if is_list_view(target):
        return _checked(_conform_list_view(array, target))
    if _is_list(target):
        return _checked(_conform_list(_compacted(array), target))
    return array.cast(target, safe=True)


def _conform_dictionary(array: Any, target: Any) -> Any:
    if not pa.types.is_dictionary(target):
        return conform_array(array.dictionary_decode(), target)
    return pa.DictionaryArray.from_arrays(
        array.indices.cast(target.index_type, safe=True),
        conform_array(array.dictionary, target.value_type),
        ordered=target.ordered,
    )


def _conform_struct(array: Any, target: Any) -> Any:
    children = []
    for field in target:
        index = _index([array.type.field(i).name for i in range(array.type.num_fields)], field.name)
        children.append(
            pa.nulls(len(array), field.type)
            if index is None
            else conform_array(array.field(index), field.type)
        )
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _conform_map(array: Any, target: Any) -> Any:
    return pa.MapArray.from_arrays(
        array.offsets,
        conform_array(array.keys, target.key_type),
        conform_array(array.items, target.item_type),
        type=target,
        mask=array.is_null(),
    )


def _conform_list(array: Any, target: Any) -> Any:
    values = conform_array(array.values, target.value_type)
    if pa.types.is_fixed_size_list(target):
        return pa.FixedSizeListArray.from_arrays(values, type=target, mask=array.is_null())
    large = pa.types.is_large_list(target)
    kind = pa.LargeListArray if large else pa.ListArray
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        offsets = pa.array(
            range(0, (len(array) + 1) * size, size) if size else [0] * (len(array) + 1)
        )
    else:
        offsets = array.offsets
    offsets = offsets.cast(pa.int64() if large else pa.int32())
    return kind.from_arrays(offsets, values, type=target, mask=array.is_null())


def _conform_list_view(array: Any, target: Any) -> Any:
    large = pa.types.is_large_list_view(target)
    lists = conform_array(array, (pa.large_list if large else pa.list_)(target.value_field))
    lists = _compacted(lists)
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    starts = lists.offsets.slice(0, len(lists))
    sizes = pc.subtract(lists.offsets.slice(1), starts)
    return kind.from_arrays(starts, sizes, lists.values, type=target, mask=lists.is_null())


def _is_list(type_: Any) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def _compacted(array: Any) -> Any:
    """A copy whose children start at zero, since a batch may be a slice of a larger one."""
    return pc.take(array, pa.array(range(len(array)), pa.int64()))


def _checked(array: Any) -> Any:
    array.validate(full=True)
    return array
