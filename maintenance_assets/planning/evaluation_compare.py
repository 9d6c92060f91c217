"""Comparing Arrow values exactly: across types, with NaN as the greatest float, -0.0 = 0.0."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.families import (
    Array,
    Family,
    family,
    unit_nanoseconds,
)
from maintenance_assets.planning.sql_types import decimal_type

_KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def mirrored(operator: str) -> str:
    """The operator that says the same with its sides exchanged."""
    return _MIRRORED.get(operator, operator)


def compare(operator: str, left: Any, right: Any) -> Any:
    """Compare values of two types that are comparable."""
    if operator == "same":
        return _same(left, right)
    if left.type == right.type and family(left.type) is Family.FLOAT:
        return _compare_floats(operator, left, right)
    if left.type == right.type:
        return _KERNELS[operator](left, right)
    return _compare_mixed(operator, left, right)


def _same(left: Any, right: Any) -> Any:
    equal = pc.fill_null(compare("=", left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _compare_floats(operator: str, left: Any, right: Any) -> Any:
    plain = _KERNELS[operator](left, right)
    if operator in ("=", "<>"):
        both = pc.and_(pc.is_nan(left), pc.is_nan(right))
        return pc.or_(plain, both) if operator == "=" else pc.and_not(plain, both)
    greater, lesser = (left, right) if operator in (">", ">=") else (right, left)
    nan = pc.is_nan(greater)
    if operator in (">", "<"):
        nan = pc.and_not(nan, pc.is_nan(lesser))
    return pc.or_(plain, nan)


def _compare_mixed(operator: str, left: Any, right: Any) -> Any:
    sides = (family(left.type), family(right.type))
    match sides:
        case (Family.FLOAT, Family.FLOAT):
            return _compare_floats(operator, left.cast(pa.float64()), right.cast(pa.float64()))
        case (Family.FLOAT, _):
            return _compare_mixed(mirrored(operator), right, left)
        case (Family.INTEGER, Family.FLOAT) if not pa.types.is_uint64(left.type):
            return _from_order(operator, *_order_integers(left, right))
        case (_, Family.FLOAT):
            return _from_order(operator, *_order_decimals(left, right))
        case (Family.INTEGER, Family.INTEGER) if not _has_uint64(left, right):
            return _KERNELS[operator](left.cast(pa.int64()), right.cast(pa.int64()))
        case (Family.INTEGER | Family.DECIMAL, _):
            common = _common_decimal(left.type, right.type)
            return _KERNELS[operator](_as_decimal(left, common), _as_decimal(right, common))
        case (Family.BINARY, _):
            wide = pa.large_binary()
            return _KERNELS[operator](left.cast(wide), right.cast(wide))
        case _:
            return _compare_units(operator, left, right)


def _has_uint64(left: Any, right: Any) -> bool:
    return pa.uint64() in (left.type, right.type)


def digits_of(type_: Any) -> tuple[int, int]:
    """How many digits before and after the point values of an exact type may have."""
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return {8: 3, 16: 5, 32: 10}.get(type_.bit_width, 20 if pa.types.is_uint64(type_) else 19), 0


def _common_decimal(left: Any, right: Any) -> Any:
    (left_whole, left_scale), (right_whole, right_scale) = digits_of(left), digits_of(right)
    whole, scale = max(left_whole, right_whole), max(left_scale, right_scale)
    return decimal_type(whole + scale, scale) if whole + scale <= 76 else None


def comparable_decimals(left: Any, right: Any) -> bool:
    """Whether some decimal type holds the values of both exact types."""
    return _common_decimal(left, right) is not None


def _as_decimal(values: Any, type_: Any) -> Any:
    return values if values.type == type_ else values.cast(type_)


def as_exact_decimal(values: Any) -> Any:
    """Integers as decimals; decimals as they are."""
    if pa.types.is_decimal(values.type):
        return values
    return values.cast(decimal_type(digits_of(values.type)[0], 0))


def _from_order(operator: str, less: Any, equal: Any) -> Any:
    """The outcome of a comparison from whether the left is less, and whether it is equal."""
    match operator:
        case "=":
            return equal
        case "<>":
            return pc.invert(equal)
        case "<":
            return less
        case "<=":
            return pc.or_(less, equal)
        case ">":
            return pc.invert(pc.or_(less, equal))
        case _:
            return pc.invert(less)


def _order_integers(left: Any, right: Any) -> tuple[Any, Any]:
    """Whether integers are less than floats, and whether they are equal."""
    integers, floats = left.cast(pa.int64()), right.cast(pa.float64())
    floor = pc.floor(floats)
    inside = pc.and_(pc.greater_equal(floor, -(2.0**63)), pc.less(floor, 2.0**63))
    whole = pc.if_else(inside, floor, 0.0).cast(pa.int64())
    above = pc.or_(pc.is_nan(floats), pc.greater_equal(floats, 2.0**63))
    level = pc.and_(inside, pc.equal(integers, whole))
    less = pc.or_(pc.and_(inside, pc.less(integers, whole)), above)
    return (
        pc.or_(less, pc.and_(level, pc.greater(floats, floor))),
        pc.and_(level, pc.equal(floats, floor)),
    )


def _order_decimals(left: Any, right: Any) -> tuple[Any, Any]:
    """The same for decimals; only where they are very close is every digit looked at."""
    decimals, floats = as_exact_decimal(left), right.cast(pa.float64())
    near = decimals.cast(pa.float64())
    gap = pc.abs(pc.subtract(near, floats))
    limit = pc.add(pc.multiply(pc.abs(near), 1e-12), 1e-290)
    close = pc.fill_null(pc.less_equal(gap, limit), False)
    less = pc.or_(pc.less(near, floats), pc.is_nan(floats))
    equal = pc.and_(pc.equal(near, floats), False)
    if not pc.any(close).as_py():
        return less, equal
    return _look_closely(decimals, floats, close, less, equal)


def _look_closely(decimals: Any, floats: Any, close: Any, less: Any, equal: Any) -> tuple[Any, Any]:
    count = max(len(side) for side in (decimals, floats) if isinstance(side, pa.Array))
    rows = np.flatnonzero(np.asarray(close))
    pairs = [(_item(decimals, row), Decimal(_item(floats, row))) for row in rows.tolist()]
    mask = pa.array(np.isin(np.arange(count), rows))
    less = pc.replace_with_mask(less, mask, pa.array([one < two for one, two in pairs]))
    equal = pc.replace_with_mask(equal, mask, pa.array([one == two for one, two in pairs]))
    return less, equal


def _item(values: Any, row: int) -> Any:
    return values.as_py() if isinstance(values, pa.Scalar) else values[row].as_py()


def _compare_units(operator: str, left: Any, right: Any) -> Any:
    """Temporal values of different units; neither is rounded and neither can overflow."""
    left_unit, right_unit = unit_nanoseconds(left.type), unit_nanoseconds(right.type)
    if left_unit < right_unit:
        return _compare_units(mirrored(operator), right, left)
    coarse, fine = _counts(left), _counts(right)
    whole, rest = _floor_divide(fine, left_unit // right_unit)
    equal = pc.equal(coarse, whole)
    less = pc.or_(pc.less(coarse, whole), pc.and_(equal, pc.greater(rest, 0)))
    return _from_order(operator, less, pc.and_(equal, pc.equal(rest, 0)))


def _counts(values: Any) -> Any:
    integers = pa.int32() if values.type.bit_width == 32 else pa.int64()
    return values.cast(integers).cast(pa.int64())


def _floor_divide(values: Any, divisor: int) -> tuple[Any, Any]:
    if divisor == 1:
        return values, pc.subtract(values, values)
    quotient = pc.divide(values, divisor)
    rest = pc.subtract(values, pc.multiply(quotient, divisor))
    below = pc.less(rest, 0)
    return (
        pc.if_else(below, pc.subtract(quotient, 1), quotient),
        pc.if_else(below, pc.add(rest, divisor), rest),
    )


def is_in(values: Array, members: Array) -> Array:
    """Whether each value is one of the members; null where it is null."""
    if family(values.type) is Family.FLOAT:
        # To the hash table -0.0 and 0.0 differ; adding zero makes them one.
        values, members = pc.add(values, 0.0), pc.add(members, 0.0)
    found = pc.is_in(values, value_set=members)
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
