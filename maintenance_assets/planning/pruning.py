"""Whether a condition can hold for any row of a file, from ranges alone.

Each condition is given the set of outcomes it can have (true, false, unknown), which may be too
large and never too small. A file is only left out if true is not among them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.extents import (
    Constants,
    Extent,
    Known,
    Ranges,
    after_prefix,
    bound,
)
from maintenance_assets.planning.extents_of_values import extent
from maintenance_assets.planning.typed import Typed

Outcomes = frozenset[bool | None]
_ALL: Outcomes = frozenset({True, False, None})


def may_hold(condition: Typed, ranges: Ranges, constants: Constants) -> bool:
    """False only if the condition is certainly true for no row."""
    columns = typed.fields(condition)
    known = Known.of(columns, ranges, constants)
    if not _can_hold(condition, known):
        return False
    floats = [one for one in columns if known.extents[one.path].has_nan]
    # Case by case: a number between 5 and 6 is not NaN, though NaN is above 5.
    return not floats or any(
        _can_hold(condition, known.supposing(supposed))
        for supposed in _suppositions(floats[:_MOST_CASES])
    )


def _can_hold(condition: Typed, known: Known) -> bool:
    """Whether true is among the outcomes; most files are excluded by the first of many tests."""
    match condition:
        case typed.And():
            return all(_can_hold(operand, known) for operand in condition.operands)
        case typed.Or():
            return any(_can_hold(operand, known) for operand in condition.operands)
        case _:
            return True in outcomes(condition, known)


_MOST_CASES = 4
"""Columns of which it is considered that they are NaN, and that they are not."""


def _suppositions(floats: list[typed.Field]) -> Iterator[dict[tuple[str, ...], bool]]:
    for choice in product((False, True), repeat=len(floats)):
        yield {one.path: nan for one, nan in zip(floats, choice, strict=True)}


def outcomes(node: Typed, known: Known) -> Outcomes:
    """The outcomes that a condition can have."""
    match node:
        case typed.And() | typed.Or():
            parts = [outcomes(operand, known) for operand in node.operands]
            return _junction(parts, isinstance(node, typed.And))
        case typed.Not():
            inner = outcomes(node.operand, known)
            return frozenset(None if one is None else not one for one in inner)
        case typed.IsTruth():
            inner = outcomes(node.operand, known)
            return frozenset(one is node.value for one in inner)
        case typed.Compare():
            sides = (extent(one, known) for one in (node.left, node.right))
            return _comparison(node.operator, *sides)
        case typed.IsNull() | typed.Decided() | typed.Member() | typed.Like():
            return _test(node, _operand(node.operand, known))
        case typed.Field() | typed.Constant():
            return _boolean(extent(node, known))
        case typed.Case():
            values = (*(value for _, value in node.branches), node.otherwise)
            return frozenset().union(*(outcomes(one, known) for one in values))
        case typed.Call(name="starts_with"):
            return _like((node.options[0], None), extent(node.arguments[0], known))
        case typed.Call(name="isnan"):
            return _is_nan(extent(node.arguments[0], known))
        case _:
            return _ALL


def _is_nan(values: Extent) -> Outcomes:
    found: set[bool | None] = {None} if values.has_null else set()
    found |= {True} if values.has_nan else set()
    return frozenset(found | ({False} if values.has_value else set()))


def _operand(node: Typed, known: Known) -> Extent:
    if isinstance(node, typed.Field | typed.Constant) or not pa.types.is_boolean(node.type):
        return extent(node, known)
    # A condition as a value: whether it is NULL is known from its outcomes.
    found = outcomes(node, known)
    return Extent(has_null=None in found, has_value=found != {None})


def _junction(parts: Iterable[Outcomes], conjunction: bool) -> Outcomes:
    """AND of all parts, or OR; each part can have any of its outcomes whatever the others have."""
    parts = list(parts)
    decisive, other = not conjunction, conjunction
    found: set[bool | None] = set()
    if any(decisive in part for part in parts):
        found.add(decisive)
    if all(other in part for part in parts):
        found.add(other)
    open_ = [part for part in parts if part != {decisive}]
    if len(open_) == len(parts) and any(None in part for part in parts):
        found.add(None)
    return frozenset(found)


def _boolean(values: Extent) -> Outcomes:
    found: set[bool | None] = {None} if values.has_null else set()
    if values.has_value:
        found |= {one for one in (True, False) if _is_within(one, values)}
    return frozenset(found)


def _is_within(value: Any, values: Extent) -> bool:
    below = values.low is not None and value < values.low
    above = values.high is not None and value > values.high
    return not (below or above)


# --- comparisons ---------------------------------------------------------------------------

_HOLDS = {
    "=": frozenset({0}),
    "<>": frozenset({-1, 1}),
    "<": frozenset({-1}),
    "<=": frozenset({-1, 0}),
    ">": frozenset({1}),
    ">=": frozenset({0, 1}),
    "same": frozenset({0}),
}


def _comparison(operator: str, left: Extent, right: Extent) -> Outcomes:
    found: set[bool | None] = {order in _HOLDS[operator] for order in _orders(left, right)}
    nulls = (left.has_null, right.has_null)
    if operator != "same":
        return frozenset(found | ({None} if any(nulls) else set()))
    if all(nulls):
        found.add(True)
    values = (left.has_value or left.has_nan, right.has_value or right.has_nan)
    if (nulls[0] and values[1]) or (nulls[1] and values[0]):
        found.add(False)
    return frozenset(found)


def _orders(left: Extent, right: Extent) -> set[int]:
    """How values can stand to each other: less, equal, greater; NaN is above all else."""
    found = set()
    if left.has_value and right.has_value:
        found |= _orders_of_values(left, right)
    if left.has_nan and right.has_value:
        found.add(1)
    if right.has_nan and left.has_value:
        found.add(-1)
    if left.has_nan and right.has_nan:
        found.add(0)
    return found


def _orders_of_values(left: Extent, right: Extent) -> set[int]:
    found = {-1, 0, 1}
    if left.low is not None and right.high is not None and left.low >= right.high:
        found.discard(-1)
        if left.low > right.high:
            found.discard(0)
    if left.high is not None and right.low is not None and left.high <= right.low:
        found.discard(1)
        if left.high < right.low:
            found.discard(0)
    return found


# --- tests of one value --------------------------------------------------------------------


def _test(node: Any, values: Extent) -> Outcomes:
    some = values.has_value or values.has_nan
    match node:
        case typed.IsNull():
            return frozenset(([True] if values.has_null else []) + ([False] if some else []))
        case typed.Decided():
            nulls: list[bool | None] = [None] if values.has_null else []
            return frozenset(nulls + ([node.outcome] if some else []))
        case typed.Member():
            return _member(node, values)
        case _:
            return _ALL if node.ignore_case else _like(node.parts, values)


def _member(node: typed.Member, values: Extent) -> Outcomes:
    """Members are sorted, NaN last."""
    found: set[bool | None] = {None} if values.has_null else set()
    members = node.values
    count = len(members)
    nan = count > 0 and bound(members[count - 1]) != bound(members[count - 1])
    count -= nan
    within = values.has_value and _any_within(members, count, values)
    if within or (nan and values.has_nan):
        found.add(True)
    missing = None if node.has_null else False
    if not (values.is_point and within) and (values.has_value or values.has_nan):
        found.add(missing)
    return frozenset(found)


def _any_within(members: Any, count: int, values: Extent) -> bool:
    def value_at(index: int) -> Any:
        return bound(members[index])

    first = 0
    if values.low is not None:
        first = bisect_left(range(count), values.low, key=value_at)
    return first < count and (values.high is None or value_at(first) <= values.high)


def _like(parts: tuple[str | int | None, ...], values: Extent) -> Outcomes:
    found: set[bool | None] = {None} if values.has_null else set()
    if not values.has_value:
        return frozenset(found)
    prefix = parts[0] if parts and isinstance(parts[0], str) else ""
    if _can_begin(prefix, values):
        found.add(True)
    if not _must_match(parts, prefix, values):
        found.add(False)
    return frozenset(found)


def _can_begin(prefix: str, values: Extent) -> bool:
    if values.high is not None and values.high < prefix:
        return False
    after = after_prefix(prefix)
    return values.low is None or after is None or values.low < after


def _must_match(parts: tuple[str | int | None, ...], prefix: str, values: Extent) -> bool:
    if parts == (None,):
        return True
    if parts != (prefix, None) or not values.is_known:
        return False
    return bool(values.low.startswith(prefix) and values.high.startswith(prefix))
