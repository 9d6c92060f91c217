"""What calculations, casts and functions make of the extents of their operands.

Only what grows with its operand is followed; whatever else comes out can be anything.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.extents import NOTHING, Extent, Known, anything, point
from maintenance_assets.planning.families import (
    DAY_NANOSECONDS,
    MOMENTS,
    NUMBERS,
    ArrowType,
    Family,
    family,
)
from maintenance_assets.planning.moments import offset_of
from maintenance_assets.planning.typed import Typed

_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000_000_000
_Bounds = tuple[Any, Any]


def extent(node: Typed, known: Known) -> Extent:
    """What a value can be."""
    match node:
        case typed.Field():
            return known.extents[node.path]
        case typed.Constant():
            return point(node.scalar)
        case typed.Case():
            values = [value for _, value in node.branches]
            return _union([extent(one, known) for one in (*values, node.otherwise)])
        case typed.Arithmetic() | typed.Negate() | typed.Cast() | typed.Call():
            operands = [extent(child, known) for child in typed.children(node)]
            return _computed(node, operands)
        case _:
            return anything(node.type)


def _computed(node: Any, operands: Sequence[Extent]) -> Extent:
    if isinstance(node, typed.Call) and node.name == "coalesce":
        return _union(operands)
    whole = anything(node.type)
    keeps_null = not (isinstance(node, typed.Call) and node.name in _SKIP_NULL)
    if keeps_null and not all(one.has_value or one.has_nan for one in operands):
        return NOTHING
    if _keeps_nan(node) and any(one.has_nan and not one.has_value for one in operands):
        return Extent(has_value=False, has_nan=True)
    found = _bounds(node, operands)
    return whole if found is None else replace(whole, low=found[0], high=found[1])


_SKIP_NULL = frozenset({"concat", "greatest", "least", "nullif"})


def _keeps_nan(node: Any) -> bool:
    """Whether the result is NaN, or NULL, as soon as one operand is NaN."""
    return family(node.type) is Family.FLOAT and not isinstance(node, typed.Call)


def _union(parts: Sequence[Extent]) -> Extent:
    values = [part for part in parts if part.has_value]
    lows, highs = [part.low for part in values], [part.high for part in values]
    return Extent(
        None if None in lows else min(lows, default=None),
        None if None in highs else max(highs, default=None),
        has_null=True,
        has_value=bool(values),
        has_nan=any(part.has_nan for part in parts),
    )


def _bounds(node: Any, operands: Sequence[Extent]) -> _Bounds | None:
    if not all(one.has_value and one.is_known for one in operands):
        return None
    match node:
        case typed.Arithmetic():
            return _arithmetic(node, operands[0], operands[1])
        case typed.Negate():
            return -operands[0].high, -operands[0].low
        case typed.Cast():
            return _cast(node.operand.type, node.type, operands[0])
        case _:
            return _call(node, operands)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
}


def _arithmetic(node: typed.Arithmetic, left: Extent, right: Extent) -> _Bounds | None:
    operation = _OPERATIONS.get(node.operator)
    families = {family(node.left.type), family(node.right.type)}
    timed = families <= {*MOMENTS, Family.DURATION} and Family.DURATION in families
    if operation is None or not (families <= NUMBERS or timed):
        return None
    # How Arrow rounds a decimal to a float is its own affair.
    if family(node.type) is Family.FLOAT and Family.DECIMAL in families:
        return None
    convert = _double if family(node.type) is Family.FLOAT else _itself
    try:
        found = [
            operation(convert(one), convert(other))
            for one in (left.low, left.high)
            for other in (right.low, right.high)
        ]
    except OverflowError:
        return None
    # Rounding keeps the order, so the corners bound floats as well; unless one is no number.
    if any(isinstance(value, float) and math.isnan(value) for value in found):
        return None
    return min(found), max(found)


def _double(value: Any) -> float:
    return float(value)


def _itself(value: Any) -> Any:
    return value


def _cast(source: ArrowType, target: ArrowType, operand: Extent) -> _Bounds | None:
    own, wanted = family(source), family(target)
    low, high = operand.low, operand.high
    if own is wanted is Family.FLOAT:
        return _as_float(low, target), _as_float(high, target)
    if {own, wanted} <= NUMBERS - {Family.FLOAT} or own is wanted:
        return low, high
    if (own, wanted) == (Family.DATE, Family.TIMESTAMP):
        return low, high
    if own in MOMENTS and wanted in (Family.DATE, Family.TIMESTAMP):
        low, high = _wall(source, low, high)
        return (low, high) if wanted is Family.TIMESTAMP else (_day(low), _day(high))
    return None


def _as_float(value: float, target: ArrowType) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if pa.types.is_float32(target) else value


def _day(count: int) -> int:
    return count // DAY_NANOSECONDS * DAY_NANOSECONDS


def _wall(type_: ArrowType, low: int, high: int) -> _Bounds:
    """Bounds on the clock of the zone: where the offset changes, wider by more than any offset."""
    if family(type_) is not Family.INSTANT:
        return low, high
    offset = offset_of(type_.tz)
    if offset is None:
        return low - DAY_NANOSECONDS, high + DAY_NANOSECONDS
    return low + offset, high + offset


def _call(node: typed.Call, operands: Sequence[Extent]) -> _Bounds | None:
    low, high = operands[0].low, operands[0].high
    own = family(node.arguments[0].type)
    if own in MOMENTS and node.name in _COARSER:
        return _date_part(node.name, *_wall(node.arguments[0].type, low, high))
    if own in (Family.DATE, Family.TIMESTAMP) and node.name == "date_trunc":
        return _truncated(node.options[0], low, high)
    if own in NUMBERS and node.name in ("floor", "ceil") and own is not Family.FLOAT:
        whole = math.floor if node.name == "floor" else math.ceil
        return Fraction(whole(low)), Fraction(whole(high))
    if node.name in ("greatest", "least") and all(one.has_value for one in operands):
        # NULLs are passed over, so either operand may be the one that counts.
        return min(one.low for one in operands), max(one.high for one in operands)
    return None


_COARSER = {
    "year": (),
    "quarter": ("year",),
    "month": ("year",),
    "doy": ("year",),
    "day": ("year", "month"),
    "hour": ("year", "month", "day"),
    "minute": ("year", "month", "day", "hour"),
    "second": ("year", "month", "day", "hour", "minute"),
}
"""A part grows with time as long as these stay the same."""


def _date_part(name: str, low: int, high: int) -> _Bounds | None:
    first, last = _parts(low), _parts(high)
    if first is None or last is None:
        return None
    same = all(first[part] == last[part] for part in _COARSER[name])
    return (first[name], last[name]) if same else None


def _parts(count: int) -> dict[str, int] | None:
    days, rest = divmod(count, DAY_NANOSECONDS)
    try:
        day = date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):
        return None
    seconds = rest // _SECOND
    return {
        "year": day.year,
        "quarter": (day.month + 2) // 3,
        "month": day.month,
        "doy": day.timetuple().tm_yday,
        "day": day.day,
        "hour": seconds // 3600,
        "minute": seconds // 60 % 60,
        "second": seconds % 60,
    }


_LONGEST = {
    "year": 366,
    "quarter": 92,
    "month": 31,
    "week": 7,
    "day": 1,
    "hour": 1,
    "minute": 1,
    "second": 1,
}
"""Days within which the start of the unit lies."""


def _truncated(unit: str, low: int, high: int) -> _Bounds:
    return low - _LONGEST[unit] * DAY_NANOSECONDS, high
