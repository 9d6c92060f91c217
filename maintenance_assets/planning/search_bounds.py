"""What a condition says of single columns, for a first choice of files by a database."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.extents import after_prefix
from maintenance_assets.planning.typed import Typed

_MOST_CHOICES = 50
"""More would make a statement that databases take long for, or do not take."""


@dataclass(frozen=True, slots=True)
class SearchBound:
    """Rows that are asked for have a value of this column between two pyarrow scalars."""

    column: str
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Rows that are asked for lie in all bounds of at least one of these."""

    each: tuple[tuple["Bound", ...], ...]


Bound = SearchBound | Choices


def search_bounds(condition: Typed) -> tuple[Bound, ...]:
    """Bounds that every row for which the condition is true lies in; not all that there are."""
    match condition:
        case typed.And():
            return tuple(bound for part in condition.operands for bound in search_bounds(part))
        case typed.Or():
            return _any_of(tuple(search_bounds(part) for part in condition.operands))
        case typed.Compare(operator, typed.Field() as field, typed.Constant(scalar)):
            return _compared(operator, field, scalar)
        case typed.Member(typed.Field() as field, values):
            return _one_of(field, values)
        case typed.Like(typed.Field() as field, (str() as prefix, *_), False):
            return _beginning(field, prefix)
        case _:
            return ()


def is_covered(condition: Typed) -> bool:
    """Whether the bounds say all that the condition does, but for values at their edges."""
    match condition:
        case typed.And() | typed.Or():
            told = all(is_covered(part) for part in condition.operands)
            return told and bool(search_bounds(condition))
        case typed.Member():
            found = search_bounds(condition)
            return bool(found) and (isinstance(found[0], Choices) or len(condition.values) == 1)
        case typed.Like():
            return condition.parts[1:] == (None,) and bool(search_bounds(condition))
        case _:
            return isinstance(condition, typed.Compare) and bool(search_bounds(condition))


def _any_of(each: tuple[tuple[Bound, ...], ...]) -> tuple[Bound, ...]:
    found = Choices(each)
    return (found,) if all(each) and _size(found) <= _MOST_CHOICES else ()


def _size(bound: Bound) -> int:
    if isinstance(bound, SearchBound):
        return 1
    return sum(_size(part) for choice in bound.each for part in choice)


def _compared(operator: str, field: typed.Field, scalar: Any) -> tuple[Bound, ...]:
    if not _is_plain(field) or not scalar.is_valid:
        return ()
    # NaN is above all numbers and in no footer: what is bounded from below only may hold it.
    no_upper = pa.types.is_floating(field.type)
    match operator:
        case "=":
            return (SearchBound(field.path[0], scalar, scalar),)
        case "<" | "<=":
            return (SearchBound(field.path[0], high=scalar),)
        case ">" | ">=" if not no_upper:
            return (SearchBound(field.path[0], low=scalar),)
        case _:
            return ()


def _one_of(field: typed.Field, values: Any) -> tuple[Bound, ...]:
    if not _is_plain(field) or pa.types.is_floating(field.type) or not len(values):
        return ()
    known = [value for value in values.to_pylist() if value is not None]
    if not known or not isinstance(known[0], int | str) or isinstance(known[0], bool):
        return ()
    if 1 < len(known) <= _MOST_CHOICES:
        points = (pa.scalar(value, field.type) for value in known)
        return (Choices(tuple((SearchBound(field.path[0], p, p),) for p in points)),)
    # Text is ordered by its bytes, as in UTF-8; Python orders it by code points, which is the same.
    low, high = (pa.scalar(edge, field.type) for edge in (min(known), max(known)))
    return (SearchBound(field.path[0], low, high),)


def _beginning(field: typed.Field, prefix: str) -> tuple[Bound, ...]:
    if not prefix or not _is_plain(field):
        return ()
    after = after_prefix(prefix)
    high = None if after is None else pa.scalar(after, field.type)
    return (SearchBound(field.path[0], pa.scalar(prefix, field.type), high),)


def _is_plain(field: typed.Field) -> bool:
    """Whether the column is compared as it is stored; text may be of another width."""
    if len(field.path) != 1:
        return False
    return bool(field.type == field.source) or (
        pa.types.is_large_string(field.type)
        and (pa.types.is_string(field.source) or pa.types.is_string_view(field.source))
    )
