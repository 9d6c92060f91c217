"""Calculating with Arrow values: no number wraps, and division by zero is NULL.

Integers calculate in 64 bits and decimals exactly, where overflow is an error; anything with a
float as double, where it is infinity. `/` always gives a double; `%` has the sign of the dividend.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.evaluation_compare import as_exact_decimal, digits_of
from maintenance_assets.planning.families import (
    MOMENTS,
    NUMBERS,
    ArrowType,
    Family,
    family,
    type_name,
)
from maintenance_assets.planning.sql_types import decimal_type

_CHECKED: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}
_UNITS = ("s", "ms", "us", "ns")
_MAX_DIGITS = 76


def arithmetic_type(operator: str, left: ArrowType, right: ArrowType) -> ArrowType:
    """The type of a result; ValueError in words when types do not calculate with each other."""
    families = (family(left), family(right))
    if set(families) <= NUMBERS:
        return _number_type(operator, left, right)
    found = _temporal_type(operator, left, right) if operator in "+-" else None
    if found is None:
        raise ValueError(f"{type_name(left)} {operator} {type_name(right)} cannot be calculated")
    return found


def _number_type(operator: str, left: ArrowType, right: ArrowType) -> ArrowType:
    families = {family(left), family(right)}
    if operator == "/" or Family.FLOAT in families:
        return pa.float64()
    if families == {Family.INTEGER} and pa.uint64() not in (left, right):
        return pa.int64()
    whole, scale = _result_digits(operator, digits_of(left), digits_of(right))
    if whole + scale > _MAX_DIGITS:
        raise ValueError(
            f"The result needs {whole + scale} digits, and decimals have {_MAX_DIGITS}: "
            "round an operand, or cast one to DOUBLE"
        )
    return decimal_type(whole + scale, scale)


def _result_digits(operator: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    scale = max(left[1], right[1])
    if operator == "*":
        return left[0] + right[0], left[1] + right[1]
    return max(left[0], right[0]) + (operator != "%"), scale


def _temporal_type(operator: str, left: ArrowType, right: ArrowType) -> ArrowType | None:
    sides = (family(left), family(right))
    match sides:
        case (Family.DATE, Family.INTEGER):
            return left
        case (Family.INTEGER, Family.DATE) if operator == "+":
            return right
        case (Family.DATE, Family.DATE) if operator == "-":
            return pa.int64()
        case (Family.DURATION, moment) if moment in MOMENTS and operator == "+":
            return _moved(right)
        case (moment, Family.DURATION) if moment in MOMENTS:
            return _moved(left)
        case (Family.DURATION, Family.DURATION):
            return pa.duration(_finer(left, right))
        case (one, other) if one is other and one in MOMENTS and operator == "-":
            return pa.duration(_finer(left, right))
        case _:
            return None


def _moved(moment: ArrowType) -> ArrowType:
    """A date moved by a length of time is a timestamp; a timestamp keeps its unit."""
    return pa.timestamp("us") if pa.types.is_date(moment) else moment


def _finer(left: ArrowType, right: ArrowType) -> str:
    return max(left.unit, right.unit, key=_UNITS.index)


def arithmetic(operator: str, left: Any, right: Any, type_: ArrowType) -> Any:
    """Calculate in the type that `arithmetic_type` gives."""
    if not {family(left.type), family(right.type)} <= NUMBERS:
        return _temporal(operator, left, right, type_)
    if operator == "/":
        divisor = as_double(right)
        return pc.divide(as_double(left), _without_zero(divisor))
    if family(type_) is Family.FLOAT:
        return _floats(operator, as_double(left), as_double(right))
    if family(type_) is Family.INTEGER:
        return _integers(operator, left.cast(pa.int64()), right.cast(pa.int64()))
    return _decimals(operator, as_exact_decimal(left), as_exact_decimal(right), type_)


def as_double(values: Any) -> Any:
    """The nearest double of each number."""
    return values.cast(pa.float64(), safe=False)


def _without_zero(values: Any) -> Any:
    return pc.if_else(pc.equal(values, pa.scalar(0).cast(values.type)), None, values)


def _floats(operator: str, left: Any, right: Any) -> Any:
    if operator != "%":
        return _PLAIN[operator](left, right)
    valid = pc.and_(pc.is_valid(left), pc.is_valid(_without_zero(right)))
    with np.errstate(invalid="ignore"):
        rest = np.fmod(*(pc.fill_null(side, 1.0).to_numpy(False) for side in (left, right)))
    return pc.if_else(valid, pa.array(rest, pa.float64()), None)


def _integers(operator: str, left: Any, right: Any) -> Any:
    if operator != "%":
        return _overflowing(operator, left, right, "BIGINT")
    # The least integer by -1 overflows, though the rest is 0 as by 1.
    divisor = pc.if_else(pc.equal(right, -1), 1, _without_zero(right))
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def _overflowing(operator: str, left: Any, right: Any, name: str) -> Any:
    try:
        return _CHECKED[operator](left, right)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"A result of {operator} is out of range for {name}") from error


def _decimals(operator: str, left: Any, right: Any, type_: ArrowType) -> Any:
    if operator == "%":
        return _row_by_row(lambda one, other: one % other if other else None, left, right, type_)
    if operator == "*":
        return _product(left, right, type_)
    # Arrow adds a digit of its own, so the operands have one less than the result.
    wide = pa.decimal128 if type_.precision <= 38 else pa.decimal256
    operand = wide(max(1, type_.precision - 1), type_.scale)
    return _CHECKED[operator](left.cast(operand), right.cast(operand)).cast(type_)


def _product(left: Any, right: Any, type_: ArrowType) -> Any:
    digits = left.type.precision + right.type.precision + 1
    if digits > _MAX_DIGITS:
        return _row_by_row(lambda one, other: one * other, left, right, type_)
    if digits > 38:
        left = left.cast(pa.decimal256(left.type.precision, left.type.scale))
    return pc.multiply_checked(left, right).cast(type_)


def _row_by_row(
    operation: Callable[[Decimal, Decimal], Decimal | None], left: Any, right: Any, type_: ArrowType
) -> Any:
    with localcontext(prec=2 * _MAX_DIGITS):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        found = [None if None in pair else operation(*pair) for pair in pairs]
    return pa.array(found, type_)


def _temporal(operator: str, left: Any, right: Any, type_: ArrowType) -> Any:
    if family(type_) is Family.DATE:
        return (
            _overflowing(operator, _days(left), _days(right), "DATE").cast(pa.int32()).cast(type_)
        )
    if family(type_) is Family.INTEGER:
        return pc.subtract(_days(left), _days(right))
    moment = None if family(type_) is Family.DURATION else type_
    first, second = (_in_unit(side, type_.unit, moment) for side in (left, right))
    return _overflowing(operator, first, second, str(type_))


def _days(values: Any) -> Any:
    integers = pa.int32() if family(values.type) is Family.DATE else pa.int64()
    return values.cast(integers).cast(pa.int64())


def _in_unit(values: Any, unit: str, moment: ArrowType | None = None) -> Any:
    """Durations and moments in one unit; what would be cut off is an error."""
    own = family(values.type)
    if own is Family.DURATION:
        return values.cast(pa.duration(unit))
    if own is Family.DATE:
        return values.cast(moment or pa.timestamp(unit))
    return values.cast(pa.timestamp(unit, values.type.tz))


def negation_type(type_: ArrowType) -> ArrowType:
    """The type of a negative; ValueError in words when there is none."""
    if family(type_) is Family.INTEGER:
        return decimal_type(20, 0) if pa.types.is_uint64(type_) else pa.int64()
    if family(type_) in (Family.DECIMAL, Family.FLOAT, Family.DURATION):
        return type_
    raise ValueError(f"{type_name(type_)} has no negative")


def negate(values: Any, type_: ArrowType) -> Any:
    """Unary minus, in the type that `negation_type` gives."""
    if family(type_) is Family.INTEGER:
        return _overflowing("-", pa.scalar(0, pa.int64()), values.cast(pa.int64()), "BIGINT")
    if family(type_) is Family.DURATION:
        zero = pa.scalar(0, pa.int64()).cast(type_)
        return _overflowing("-", zero, values, str(type_))
    return pc.negate(values.cast(type_))
