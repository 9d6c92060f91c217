"""Values for a column: strictly in its type, so that nothing is cut off on the way in.

Numbers become the nearest float, but an integer only one that is equal to it. Texts are read as
dates, times and UUIDs only where they are constants; anything else has to be cast by who writes it.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.binding_constants import IncomparableError, locate
from maintenance_assets.planning.evaluation_cast import cast_exactly
from maintenance_assets.planning.families import (
    NUMBERS,
    TEMPORAL,
    ArrowType,
    Family,
    family,
    plain_array,
    plain_type,
    type_name,
)
from maintenance_assets.planning.typed import Constant

Array = Any


def check_assignable(source: ArrowType, target: ArrowType) -> None:
    """ValueError in words unless values of a plain type can be assigned to a column."""
    own, wanted = family(source), family(plain_type(target))
    plain = plain_type(target)
    if source in (plain, target) or own is Family.NULL or {own, wanted} <= NUMBERS:
        return
    if own is wanted and own in (*TEMPORAL, Family.BINARY):
        return
    if (own, wanted) == (Family.DATE, Family.TIMESTAMP) or _nests_alike(source, target):
        return
    raise ValueError(
        f"Values of type {type_name(source)} do not go into a column of type {target}: "
        "say what is meant with CAST"
    )


def _nests_alike(source: ArrowType, target: ArrowType) -> bool:
    """Whether both are nested in the same way, down to values that can be assigned."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        names = [[one.field(i).name for i in range(one.num_fields)] for one in (source, target)]
        if names[0] != names[1]:
            return False
    elif not any(check(source) and check(target) for check in (_is_list, pa.types.is_map)):
        return False
    pairs = [(source.field(i).type, target.field(i).type) for i in range(source.num_fields)]
    return all(_goes_into(one, other) for one, other in pairs)


def _goes_into(source: ArrowType, target: ArrowType) -> bool:
    try:
        check_assignable(source if pa.types.is_nested(source) else plain_type(source), target)
    except ValueError:
        return False
    return True


def _is_list(type_: ArrowType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def assign(values: Array, target: ArrowType) -> Array:
    """Plain values in the type of a column; ValueError that shows a value which does not fit."""
    if values.type == target:
        return values
    return from_plain(cast_exactly(values, plain_type(target)), target)


def from_plain(values: Array, target: ArrowType) -> Array:
    """Plain values as they are stored: as dictionary, view, extension and so on."""
    if values.type == target:
        return values
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, from_plain(values, target.storage_type))
    if pa.types.is_dictionary(target):
        encoded = values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(target.index_type),
            from_plain(encoded.dictionary, target.value_type),
            ordered=target.ordered,
        )
    if pa.types.is_float16(target):
        return _halves(values, target)
    return values.cast(target)


def _halves(values: Array, target: ArrowType) -> Array:
    halves = values.cast(target)
    grown = pc.and_(pc.is_inf(halves.cast(pa.float32())), pc.is_finite(values))
    if pc.any(grown).as_py():
        raise ValueError(f"A value is out of range for {target}")
    return halves


def natural_type(plain: ArrowType) -> ArrowType:
    """The type of a new column for values of a plain type."""
    if pa.types.is_large_string(plain):
        return pa.string()
    if pa.types.is_large_binary(plain):
        return pa.binary()
    if pa.types.is_large_list(plain):
        return pa.list_(plain.value_field.with_type(natural_type(plain.value_type)))
    if pa.types.is_list(plain):
        return pa.list_(plain.value_field.with_type(natural_type(plain.value_type)))
    if pa.types.is_struct(plain):
        fields = [plain.field(i) for i in range(plain.num_fields)]
        return pa.struct([field.with_type(natural_type(field.type)) for field in fields])
    return plain


def literal_scalar(value: Any, target: ArrowType | None) -> Any:
    """A Python, NumPy or Arrow value as a scalar; ValueError in words when it does not fit."""
    if target is None:
        return value if isinstance(value, pa.Scalar) else _inferred(value)
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return pa.scalar(None, target)
    if isinstance(value, pa.Scalar) and value.type == target:
        return value
    if pa.types.is_nested(target):
        return _nested(value, target)
    return _leaf(value, target)


_COLUMNS = ("__arrow_c_array__", "__arrow_c_stream__")


def _inferred(value: Any) -> Any:
    # A column of another library is a value for each row, not one for all.
    if isinstance(value, set | frozenset) or any(hasattr(value, mark) for mark in _COLUMNS):
        raise ValueError(f"Expected one value, not a {type(value).__name__}")
    try:
        return pa.scalar(_known_to_arrow(value))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{value!r} of type {type(value).__name__} is not a value: {error}"
        ) from error


def _known_to_arrow(value: Any) -> Any:
    """What Arrow would not take as it is, in a form that it does."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return pa.scalar(value, pa.uint64()) if 0 <= value < 2**64 else Decimal(value)
    if isinstance(value, np.datetime64) and np.datetime_data(value)[0] == "D":
        return value.item()
    return value


def _leaf(value: Any, target: ArrowType) -> Any:
    plain = plain_type(target)
    as_decimal = isinstance(value, float) and family(plain) is Family.DECIMAL
    given = _shortest_decimal(value) if as_decimal else value
    scalar = given if isinstance(given, pa.Scalar) else _inferred(given)
    given = plain_array(pa.array([scalar], scalar.type), plain_type(scalar.type))
    own = family(given.type)
    if {own, family(plain)} & {Family.OTHER} and given.type != plain:
        raise ValueError(f"{value!r} does not fit {target}")
    fitted = _fitted(given[0], plain, value)
    return from_plain(pa.array([fitted], plain), target)[0]


def _shortest_decimal(value: float) -> Any:
    """The decimal that is written like a float: 0.1 is one tenth."""
    return Decimal(repr(value)) if math.isfinite(value) else value


def _fitted(given: Any, plain: ArrowType, value: Any) -> Any:
    if given.type == plain:
        return given
    shown = value.as_py() if isinstance(value, pa.Scalar) else value
    try:
        place = locate(Constant(given, written=True), plain)
    except ValueError as error:
        why = str(error)
        if isinstance(error, IncomparableError):  # nobody has compared anything
            why = f"{type_name(given.type)} cannot be assigned to {type_name(plain)}{error.hint}"
        raise ValueError(f"{shown!r} is not a value of {type_name(plain)}: {why}") from None
    if not place.exact:
        raise ValueError(f"{shown!r} does not fit {type_name(plain)}")
    if family(plain) is Family.BINARY and pa.types.is_fixed_size_binary(plain):
        return place.value.cast(plain)
    return place.value


def _nested(value: Any, target: ArrowType) -> Any:
    if isinstance(value, pa.Scalar):
        return value.cast(target)
    try:
        return pa.scalar(_converted(value, target), target)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"{value!r} does not fit {target}: {error}") from error


def _converted(value: Any, target: ArrowType) -> Any:
    """The same nesting with leaves that are scalars of the right type."""
    if value is None:
        return None
    if pa.types.is_struct(target):
        return _converted_struct(value, target)
    if pa.types.is_map(target):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [
            (_converted(key, target.key_type), _converted(item, target.item_type))
            for key, item in pairs
        ]
    if pa.types.is_nested(target):
        if isinstance(value, str | bytes | Mapping):
            raise ValueError(f"{value!r} does not fit {target}")
        return [_converted(item, target.value_type) for item in value]
    return literal_scalar(value, target)


def _converted_struct(value: Any, target: ArrowType) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} does not fit {target}")
    unknown = [key for key in value if target.get_field_index(key) < 0]
    if unknown:
        raise ValueError(f"{target} has no field {unknown[0]!r}")
    return {key: _converted(item, target.field(key).type) for key, item in value.items()}
