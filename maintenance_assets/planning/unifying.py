"""One type for values that take each other's place: the branches of CASE, of coalesce and so on."""

from collections.abc import Sequence

import pyarrow as pa

from maintenance_assets.planning.binding_constants import locate
from maintenance_assets.planning.evaluation_compare import digits_of
from maintenance_assets.planning.expressions import Span
from maintenance_assets.planning.families import (
    NUMBERS,
    TEMPORAL,
    ArrowType,
    Family,
    family,
    type_name,
)
from maintenance_assets.planning.sql_types import decimal_type
from maintenance_assets.planning.typed import Cast, Constant, Typed

_UNITS = ("s", "ms", "us", "ns")


def unified(nodes: Sequence[Typed], span: Span) -> list[Typed]:
    """The same values, all in one type; ValueError in words when there is none."""
    type_ = _common_type(nodes)
    return [_converted(node, type_, span) for node in nodes]


def _common_type(nodes: Sequence[Typed]) -> ArrowType:
    types = [node.type for node in nodes if family(node.type) is not Family.NULL]
    if not types:
        return pa.null()
    # Text constants become what the others are: coalesce(day, '2025-01-01').
    firm = [n.type for n in nodes if not _is_text(n) and family(n.type) is not Family.NULL]
    if firm and all(family(type_) in TEMPORAL for type_ in firm):
        types = firm
    found = types[0]
    for other in types[1:]:
        found = _wider(found, other)
    return found


def _is_text(node: Typed) -> bool:
    return isinstance(node, Constant) and family(node.type) is Family.TEXT


def _wider(left: ArrowType, right: ArrowType) -> ArrowType:
    if left == right:
        return left
    families = {family(left), family(right)}
    if families <= NUMBERS:
        return _wider_number(left, right, families)
    if families in ({Family.DATE, Family.TIMESTAMP}, {Family.TIMESTAMP}):
        units = [t.unit for t in (left, right) if family(t) is Family.TIMESTAMP]
        return pa.timestamp(max(units, key=_UNITS.index))
    if len(families) == 1 and families < TEMPORAL:
        return _finer(left, right)
    if families == {Family.BINARY}:
        return pa.large_binary()
    raise ValueError(f"{type_name(left)} and {type_name(right)} have no common type")


def _wider_number(left: ArrowType, right: ArrowType, families: set[Family]) -> ArrowType:
    if Family.FLOAT in families:
        return pa.float64()
    if families == {Family.INTEGER} and pa.uint64() not in (left, right):
        return pa.int64()
    whole = max(digits_of(left)[0], digits_of(right)[0])
    scale = max(digits_of(left)[1], digits_of(right)[1])
    if whole + scale > 76:
        raise ValueError(f"{left} and {right} have too many digits for a common type")
    return decimal_type(whole + scale, scale)


def _finer(left: ArrowType, right: ArrowType) -> ArrowType:
    unit = max(left.unit, right.unit, key=_UNITS.index)
    match family(left):
        case Family.INSTANT:
            return pa.timestamp(unit, left.tz if left.tz == right.tz else "UTC")
        case Family.DURATION:
            return pa.duration(unit)
        case _:
            return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _converted(node: Typed, type_: ArrowType, span: Span) -> Typed:
    if node.type == type_:
        return node
    if isinstance(node, Constant):
        return _constant(node, type_)
    return Cast(node, type_, span, exact=True)


def _constant(node: Constant, type_: ArrowType) -> Constant:
    if not node.scalar.is_valid or family(node.type) is Family.NULL:
        return Constant(pa.scalar(None, type_))
    place = locate(node, type_)
    if not place.exact:
        raise ValueError(f"{node.scalar.as_py()!r} does not fit {type_name(type_)}")
    return Constant(place.value)
