"""Columns with an order: finding them by dotted path, and bringing values to a plain form.

In the plain form a value is an integer, a float or bytes, so that every engine orders rows the
same way whatever their type was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ArrowType = Any  # pyarrow ships no types
Array = Any

_ORDERED: tuple[Callable[[ArrowType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)


def is_orderable(type_: ArrowType) -> bool:
    """Whether values of a type have an order that files can be cut by."""
    if isinstance(type_, pa.BaseExtensionType):
        return is_orderable(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return is_orderable(type_.value_type)
    return any(check(type_) for check in _ORDERED)


def find_path(schema: pa.Schema, column: str) -> tuple[str, ...] | None:
    """Names from a top-level column down to a field; a name with dots in it goes first."""
    if column in schema.names:
        return (column,)
    return _below(list(schema), column)


def _below(fields: list[Any], column: str) -> tuple[str, ...] | None:
    for field in fields:
        if field.name == column:
            return (column,)
        if column.startswith(f"{field.name}.") and pa.types.is_struct(field.type):
            children = [field.type.field(i) for i in range(field.type.num_fields)]
            rest = _below(children, column[len(field.name) + 1 :])
            if rest is not None:
                return (field.name, *rest)
    return None


def is_repeated(schema: pa.Schema, path: tuple[str, ...]) -> bool:
    """Whether another field has the name of one on the path."""
    fields = list(schema)
    for name in path:
        found = [field for field in fields if field.name == name]
        if len(found) > 1:
            return True
        fields = [found[0].type.field(i) for i in range(found[0].type.num_fields)]
    return False


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> ArrowType:
    """The type of the field at a path."""
    type_ = schema.field(path[0]).type
    for name in path[1:]:
        type_ = type_.field(name).type
    return type_


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that Parquet stores: its number among all of them, and its type."""

    index: int
    type: ArrowType


def leaf_of(schema: pa.Schema, column: str) -> Leaf | None:
    """The leaf of a dotted path; None where there is none, or where several have that name."""
    leaves = (leaf for field in schema for leaf in _leaves(field.name, field.type))
    found = [Leaf(n, type_) for n, (name, type_) in enumerate(leaves) if name == column]
    return found[0] if len(found) == 1 else None


def leaf_count(schema: pa.Schema) -> int:
    """How many leaves a schema has in Parquet."""
    return sum(1 for field in schema for _ in _leaves(field.name, field.type))


def _leaves(name: str | None, type_: ArrowType) -> Iterator[tuple[str | None, ArrowType]]:
    """Leaves with their dotted paths; those that have many values per row have none."""
    if isinstance(type_, pa.BaseExtensionType):
        inside = list(_leaves(name, type_.storage_type))
        yield from [(name, type_)] if len(inside) == 1 else [(None, each) for _, each in inside]
        return
    if not pa.types.is_nested(type_):
        yield name, type_
        return
    for child in [type_.field(index) for index in range(type_.num_fields)]:
        is_single = pa.types.is_struct(type_) and name is not None
        yield from _leaves(f"{name}.{child.name}" if is_single else None, child.type)


def plain_type(type_: ArrowType) -> ArrowType:
    """The type of the values, without a dictionary or an extension around it."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    return plain.storage_type if isinstance(plain, pa.BaseExtensionType) else plain


def column_names(schema: pa.Schema) -> list[str]:
    """All columns that have an order, nested ones by dotted path."""
    return [name for field in schema for name in _names(field.name, field.type)]


def _names(prefix: str, type_: ArrowType) -> list[str]:
    if pa.types.is_struct(type_):
        children = [type_.field(i) for i in range(type_.num_fields)]
        return [name for c in children for name in _names(f"{prefix}.{c.name}", c.type)]
    return [prefix]


def orderable_column(batch: Any, column: str) -> Array:
    """The values of a column in plain form; all null where the batch has no such column."""
    path = find_path(batch.schema, column)
    if path is None:
        return pa.nulls(batch.num_rows, pa.int64())
    array = batch.column(batch.schema.get_field_index(path[0]))
    for name in path[1:]:
        array = pc.struct_field(array, array.type.get_field_index(name))
    return orderable(array)


def orderable(array: Array) -> Array:
    """Values as integers, floats or bytes that are ordered as the values are."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return orderable(array.storage)
    if pa.types.is_dictionary(type_):
        return orderable(array.dictionary_decode())
    if pa.types.is_null(type_):
        return pa.nulls(len(array), pa.int64())
    if pa.types.is_floating(type_):
        return array.cast(pa.float64())
    if pa.types.is_boolean(type_):
        return array.cast(pa.uint8()).cast(pa.int64())
    if pa.types.is_unsigned_integer(type_):
        return array.cast(pa.uint64())
    if pa.types.is_integer(type_):
        return array.cast(pa.int64())
    if pa.types.is_temporal(type_):
        return array.view(_integer(type_.bit_width)).cast(pa.int64())
    if pa.types.is_decimal(type_):
        return _decimal_bytes(array)
    # Large: the values of a whole file together may exceed 32-bit offsets.
    return _as_binary(array).cast(pa.large_binary())


def _integer(bits: int) -> ArrowType:
    return pa.int32() if bits == 32 else pa.int64()


def _as_binary(array: Array) -> Array:
    type_ = array.type
    if pa.types.is_string_view(type_):
        return array.cast(pa.large_string()).cast(pa.large_binary())
    if pa.types.is_string(type_):
        return array.cast(pa.binary())
    return array.cast(pa.large_binary()) if pa.types.is_large_string(type_) else array


def _decimal_bytes(array: Array) -> Array:
    """The unscaled value with its highest byte first and the sign turned round."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    flipped = data.reshape(-1, width)[:, ::-1].copy()
    flipped[:, 0] ^= 0x80
    offsets = pa.py_buffer(np.arange(len(array) + 1, dtype=np.int64) * width)
    plain = pa.Array.from_buffers(
        pa.large_binary(), len(array), [None, offsets, pa.py_buffer(flipped)]
    )
    return plain if not array.null_count else pc.if_else(array.is_valid(), plain, None)
