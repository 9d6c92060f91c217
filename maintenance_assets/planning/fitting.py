"""Bringing new data to the types of a dataset, value by value, or saying what does not fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = Any
ArrowType = Any


def fit_array(array: Array, target: ArrowType, column: str) -> Array:
    """The same values in another type; ValueError names the column that cannot hold them."""
    if array.type == target:
        return array
    try:
        array = as_stored(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise ValueError(_misfit(column, array.type, plain_type(array.type), why)) from error
    if not _are_akin(array.type, target):
        raise ValueError(
            f"Column '{column}' of the new data has type {array.type}, the dataset has {target}. "
            "Cast the column of the new data to that type"
        )
    try:
        fitted = _cast(array, target)
        back = _cast(fitted, array.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(_misfit(column, array.type, target, str(error).splitlines()[0])) from error
    if not _are_same(array, back):
        raise ValueError(_misfit(column, array.type, target, "some would be rounded or cut off"))
    return fitted


def as_stored(array: Array) -> Array:
    """The same values in the type that a new column has: PyArrow casts hardly any into views."""
    if is_list_view(array.type):
        array = list_of_view(array)
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    plain = plain_type(array.type)
    return array if plain == array.type else array.cast(plain)


def is_list_view(type_: ArrowType) -> bool:
    """Whether lists lie anywhere in their values."""
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def list_of_view(array: Array) -> Array:
    """A view of lists as lists that follow each other."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = np.cumsum([0, *lengths.to_numpy()])
    if pa.types.is_large_list_view(array.type):
        type_, kind, width = pa.large_list(array.type.value_field), pa.LargeListArray, pa.int64()
    else:
        type_, kind, width = pa.list_(array.type.value_field), pa.ListArray, pa.int32()
    offsets = pa.array(ends, width)
    return kind.from_arrays(offsets, array.flatten(), type=type_, mask=array.is_null())


def plain_type(type_: ArrowType) -> ArrowType:
    """The type that a new column is stored in, which is the one that is read back.

    Views and runs are a matter of memory, not of files; and Parquet counts no whole seconds.
    """
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if isinstance(type_, pa.BaseExtensionType):
        return type_
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    if type_ in _READ_BACK:
        return _READ_BACK[type_]
    if pa.types.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if pa.types.is_dictionary(type_):
        return _plain_dictionary(type_)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(plain_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(
            key.with_type(plain_type(key.type)),
            item.with_type(plain_type(item.type)),
            type_.keys_sorted,
        )
    if pa.types.is_list_view(type_) or pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(plain_type(type_.value_type)))
    if pa.types.is_large_list_view(type_) or pa.types.is_large_list(type_):
        return pa.large_list(type_.value_field.with_type(plain_type(type_.value_type)))
    if pa.types.is_fixed_size_list(type_):
        field = type_.value_field.with_type(plain_type(type_.value_type))
        return pa.list_(field, type_.list_size)
    return type_


_READ_BACK = {
    pa.time32("s"): pa.time32("ms"),
    pa.date64(): pa.date32(),
}


def _plain_dictionary(type_: ArrowType) -> ArrowType:
    """Categories of text and bytes stay categories; all others are read back as their values."""
    value = plain_type(type_.value_type)
    value = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(value, value)
    if value not in (pa.string(), pa.binary()):
        return value
    return pa.dictionary(type_.index_type, value, ordered=type_.ordered)


def is_read_back(type_: ArrowType) -> bool:
    """Whether what is written as a type has it when it is read."""
    if isinstance(type_, pa.BaseExtensionType):
        return is_read_back(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return bool(_plain_dictionary(type_) == type_)
    is_odd = pa.types.is_run_end_encoded(type_) or type_ in _READ_BACK
    if is_odd or (pa.types.is_timestamp(type_) and type_.unit == "s"):
        return False
    return all(is_read_back(type_.field(index).type) for index in range(type_.num_fields))


def is_storable(type_: ArrowType) -> bool:
    """Whether Parquet can hold values of a type at all."""
    if isinstance(type_, pa.BaseExtensionType):
        return is_storable(type_.storage_type)
    if pa.types.is_interval(type_) or pa.types.is_union(type_):
        return False
    if pa.types.is_struct(type_) and not type_.num_fields:
        return False
    return all(is_storable(type_.field(index).type) for index in range(type_.num_fields))


def _misfit(column: str, source: ArrowType, target: ArrowType, why: str) -> str:
    return (
        f"Column '{column}' of the new data has type {source}, and not all of its values fit the "
        f"{target} of the dataset: {why}"
    )


# -- which types may meet ----------------------------------------------------------------------


def _are_akin(source: ArrowType, target: ArrowType) -> bool:
    """Whether values of one type may be values of the other at all."""
    if pa.types.is_null(source):
        return True
    source, target = _decoded(source), _decoded(target)
    if isinstance(source, pa.BaseExtensionType) or isinstance(target, pa.BaseExtensionType):
        return bool(source == target)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _have_akin_fields(source, target)
    if _is_list(source) and _is_list(target):
        return _are_akin(source.value_type, target.value_type)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _are_akin(source.key_type, target.key_type) and _are_akin(
            source.item_type, target.item_type
        )
    return any(belongs(source) and belongs(target) for belongs in _FAMILIES)


def _have_akin_fields(source: ArrowType, target: ArrowType) -> bool:
    fields = [{field.name: field.type for field in type_} for type_ in (source, target)]
    return (
        fields[0].keys() == fields[1].keys()
        and len(fields[0]) == source.num_fields == target.num_fields
        and all(_are_akin(type_, fields[1][name]) for name, type_ in fields[0].items())
    )


def _is_number(type_: ArrowType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def _is_string(type_: ArrowType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def _is_binary(type_: ArrowType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


_FAMILIES: tuple[Callable[[ArrowType], bool], ...] = (
    _is_number,
    _is_string,
    _is_binary,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)


def _is_list(type_: ArrowType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _decoded(type_: ArrowType) -> ArrowType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


# -- casting -----------------------------------------------------------------------------------


def _cast(array: Array, target: ArrowType) -> Array:
    if array.type == target:
        return array
    if pa.types.is_null(array.type) or pa.types.is_null(target):
        return pa.nulls(len(array), target)  # the way back: nothing but nulls came this way
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), target)
    if pa.types.is_dictionary(target):
        return _encoded(_cast(array, target.value_type), target)
    if pa.types.is_struct(target):
        children = [_cast(_child(array, field.name), field.type) for field in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    # A direct cast asks for digits enough for any integer, or does not exist.
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        array = array.cast(pa.decimal256(20 + max(0, target.scale), max(0, target.scale)))
    elif pa.types.is_float16(array.type) and not pa.types.is_floating(target):
        array = array.cast(pa.float32())
    return array.cast(target, safe=True)


def _encoded(array: Array, target: ArrowType) -> Array:
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        raise pa.ArrowNotImplementedError(f"{target} cannot be made")
    coded = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        coded.indices.cast(target.index_type), coded.dictionary, ordered=target.ordered
    )


def _child(array: Array, name: str) -> Array:
    return pc.struct_field(array, array.type.get_field_index(name))


def _are_same(left: Array, right: Array) -> bool:
    """Equal values, and NaN where there was NaN."""
    if pa.types.is_dictionary(left.type):
        return _are_same(left.dictionary_decode(), right.dictionary_decode())
    if not left.is_null().equals(right.is_null()):
        return False
    if pa.types.is_floating(left.type):
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
        same = pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
        return bool(pc.all(same).as_py() in (True, None))
    if pa.types.is_struct(left.type):
        names = [field.name for field in left.type]
        return all(_are_same(_child(left, name), _child(right, name)) for name in names)
    if pa.types.is_map(left.type):
        return bool(left.equals(right))
    if _is_list(left.type):
        lengths = pc.list_value_length(left).equals(pc.list_value_length(right))
        return bool(lengths) and _are_same(pc.list_flatten(left), pc.list_flatten(right))
    return bool(left.equals(right))
