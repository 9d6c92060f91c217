"""Constants beside values of another type: exactly, whatever the type can hold.

A constant is never squeezed into the type of a column. It is placed among the values of that type:
`small = 1000` never holds for an 8-bit column, and `count < 2.5` is `count <= 2`. The one rounding
is what the writer of `price = 0.1` expects: a fraction beside a float means its nearest float.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from maintenance_assets.planning.expressions import Literal, Nanoseconds
from maintenance_assets.planning.families import (
    MOMENTS,
    NUMBERS,
    TEMPORAL,
    ArrowType,
    Family,
    family,
    type_name,
    unit_nanoseconds,
)
from maintenance_assets.planning.moments import in_zone, moment, nanoseconds, parse_moment
from maintenance_assets.planning.sql_types import decimal_type
from maintenance_assets.planning.typed import Compare, Constant, Decided, IsNull, Typed

# Not pa.scalar: it loads pandas, and that is not for an import to do.
NULL_BOOLEAN = Constant(pa.nulls(1, pa.bool_())[0])
_MAX_DIGITS = 76


def constant(literal: Literal) -> Constant:
    """A literal with a type of its own; ValueError in words when no type holds it."""
    match literal.value:
        case None:
            return Constant(pa.scalar(None))
        case Decimal() if literal.approximate:
            return Constant(_finite(float(literal.value)), written=True)
        case bool():
            return Constant(pa.scalar(literal.value))
        case int():
            small = -(2**63) <= literal.value < 2**63
            return Constant(
                pa.scalar(literal.value, pa.int64()) if small else _decimal(literal.value), True
            )
        case Decimal():
            return Constant(_decimal(literal.value), written=True)
        case str():
            return Constant(pa.scalar(literal.value, pa.large_string()))
        case bytes():
            return Constant(pa.scalar(literal.value, pa.large_binary()))
        case Nanoseconds(count):
            return Constant(moment(count, pa.duration("ns")))


def _finite(value: float) -> Any:
    if math.isinf(value):
        raise ValueError("This number is too large for a float")
    return pa.scalar(value, pa.float64())


def _decimal(value: int | Decimal) -> Any:
    with localcontext(prec=_MAX_DIGITS + 1):
        exact = Decimal(value)
        scale = max(0, -int(exact.as_tuple().exponent))
        digits = max(scale, len(exact.as_tuple().digits) + max(0, int(exact.as_tuple().exponent)))
        if digits > _MAX_DIGITS:
            raise ValueError(f"A number of more than {_MAX_DIGITS} digits")
        return pa.scalar(exact, decimal_type(max(1, digits), scale))


def compare_with(operator: str, operand: Typed, other: Constant) -> Typed:
    """A comparison with a constant, in the type of the operand."""
    if not other.scalar.is_valid or family(operand.type) is Family.NULL:
        check_comparable(operand.type, other.type)
        if operator != "same":
            return NULL_BOOLEAN
        return IsNull(operand) if not other.scalar.is_valid else _never()
    place = locate(other, operand.type)
    if place.exact:
        return Compare(operator, operand, Constant(place.value))
    match operator:
        case "same":
            return _never()
        case "=" | "<>":
            return Decided(operand, operator == "<>")
        case _ if place.value is None:
            return Decided(operand, operator in (">", ">="))
        case _:
            rounded = "<=" if operator in ("<", "<=") else ">"
            return Compare(rounded, operand, Constant(place.value))


def _never() -> Constant:
    return Constant(pa.scalar(False))


class IncomparableError(ValueError):
    """Values of two types that have no one order."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        """What the message says beyond that."""
        super().__init__(f"{message}{hint}")


def check_comparable(left: ArrowType, right: ArrowType) -> None:
    """ValueError in words unless values of both types have one order."""
    families = {family(left), family(right)}
    if Family.OTHER in families:
        other = left if family(left) is Family.OTHER else right
        raise IncomparableError(f"Values of type {type_name(other)} cannot be compared")
    families.discard(Family.NULL)
    if len(families) <= 1 or families <= NUMBERS or families == {Family.DATE, Family.TIMESTAMP}:
        return
    hint = ""
    if Family.INSTANT in families and families <= MOMENTS:
        hint = ": one has a time zone, the other has none"
    raise IncomparableError(f"{type_name(left)} and {type_name(right)} cannot be compared", hint)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a constant stands among the values of a type."""

    value: Any
    """The greatest value that is not above the constant; None when all are above it."""
    exact: bool
    """Whether the value is the constant itself."""


_NOWHERE = Place(None, False)


def locate(other: Constant, type_: ArrowType) -> Place:
    """The place of a constant that is not NULL; ValueError in words if it does not compare."""
    own, theirs = family(type_), family(other.type)
    if other.type == type_ and own is not Family.OTHER:
        return Place(other.scalar, True)
    if theirs is Family.TEXT and own in TEMPORAL and own is not Family.DURATION:
        parsed_as = pa.timestamp("ns") if own is Family.DATE else type_
        return _temporal(parse_moment(other.scalar.as_py(), parsed_as), type_)
    if theirs is Family.TEXT and pa.types.is_fixed_size_binary(type_) and type_.byte_width == 16:
        return Place(pa.scalar(_uuid(other.scalar.as_py()), type_), True)
    if own is Family.INSTANT and theirs in (Family.DATE, Family.TIMESTAMP):
        return _temporal(in_zone(nanoseconds(other.scalar), type_.tz), type_)
    check_comparable(type_, other.type)
    if own in NUMBERS:
        return _LOCATE_NUMBER[own](other, type_)
    if own in TEMPORAL:
        return _temporal(nanoseconds(other.scalar), type_)
    return Place(other.scalar, True)


def _uuid(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError:
        raise ValueError(f"{text!r} is not a UUID") from None


def _temporal(count: int, type_: ArrowType) -> Place:
    units, rest = divmod(count, unit_nanoseconds(type_))
    bits = type_.bit_width - 1
    if units < -(2**bits):
        return _NOWHERE
    if units >= 2**bits:
        return Place(moment(2**bits - 1, type_), False)
    return Place(moment(units, type_), rest == 0)


def _number(other: Constant) -> Fraction | float:
    """The exact value; a float only where it is not finite."""
    value = other.scalar.as_py()
    return value if isinstance(value, float) and not math.isfinite(value) else Fraction(value)


def _integer(other: Constant, type_: ArrowType) -> Place:
    signed = pa.types.is_signed_integer(type_)
    low = -(2 ** (type_.bit_width - 1)) if signed else 0
    high = 2 ** (type_.bit_width - signed) - 1
    count, exact = _floor(_number(other), 1, low, high)
    return _NOWHERE if count is None else Place(pa.scalar(count, type_), exact)


def _scaled(other: Constant, type_: ArrowType) -> Place:
    most = 10**type_.precision - 1
    count, exact = _floor(_number(other), 10**type_.scale, -most, most)
    if count is None:
        return _NOWHERE
    with localcontext(prec=_MAX_DIGITS + 1):
        return Place(pa.scalar(Decimal(count).scaleb(-type_.scale), type_), exact)


def _floor(value: Fraction | float, scale: int, low: int, high: int) -> tuple[int | None, bool]:
    # NaN is above all numbers.
    if isinstance(value, float):
        return (None, False) if value == -math.inf else (high, False)
    scaled = value * scale
    count = math.floor(scaled)
    if count < low:
        return None, False
    return (high, False) if count > high else (count, count == scaled)


def _float(other: Constant, type_: ArrowType) -> Place:
    value = _number(other)
    single = pa.types.is_float32(type_)
    if isinstance(value, float):
        return Place(pa.scalar(value, type_), True)
    nearest = _nearest(value, single)
    exact = math.isfinite(nearest) and Fraction(nearest) == value
    # A fraction as one writes it has no float of its own: its nearest is meant.
    if not exact and math.isfinite(nearest) and _means_nearest(other, value):
        exact = True
    if not exact and (math.isinf(nearest) or Fraction(nearest) > value):
        nearest = _before(nearest, single)
    return Place(pa.scalar(nearest, type_), exact)


def _means_nearest(other: Constant, value: Fraction) -> bool:
    if family(other.type) is Family.FLOAT:
        return other.written
    return value.denominator != 1


def _nearest(value: Fraction, single: bool) -> float:
    try:
        double = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if not single:
        return double
    with np.errstate(over="ignore"):
        near = np.float32(double)
    if math.isinf(near):
        return float(near)
    sides = (near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf)))
    finite = [float(side) for side in sides if math.isfinite(side)]
    return min(finite, key=lambda side: abs(Fraction(side) - value))


def _before(value: float, single: bool) -> float:
    """The float just below; of minus infinity, itself."""
    if single:
        return float(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return math.nextafter(value, -math.inf)


_LOCATE_NUMBER = {Family.INTEGER: _integer, Family.DECIMAL: _scaled, Family.FLOAT: _float}
