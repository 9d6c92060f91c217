"""What a condition says of single columns, for a first choice of files by a database."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.typed import Typed


@dataclass(frozen=True, slots=True)
class SearchBound:
    """Rows that are asked for have a value of this column between two pyarrow scalars."""

    column: str
    low: Any = None
    high: Any = None


def search_bounds(condition: Typed) -> tuple[SearchBound, ...]:
    """Bounds that every row for which the condition is true lies in; not all that there are."""
    match condition:
        case typed.And():
            return tuple(bound for part in condition.operands for bound in search_bounds(part))
        case typed.Compare(operator, typed.Field() as field, typed.Constant(scalar)):
            return _compared(operator, field, scalar)
        case typed.Member(typed.Field() as field, values):
            return _one_of(field, values)
        case _:
            return ()


def is_covered(condition: Typed) -> bool:
    """Whether the bounds say all that the condition does, but for values at their edges."""
    if isinstance(condition, typed.And):
        return all(is_covered(part) for part in condition.operands)
    return isinstance(condition, typed.Compare) and bool(search_bounds(condition))


def _compared(operator: str, field: typed.Field, scalar: Any) -> tuple[SearchBound, ...]:
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


def _one_of(field: typed.Field, values: Any) -> tuple[SearchBound, ...]:
    if not _is_plain(field) or pa.types.is_floating(field.type) or not len(values):
        return ()
    known = [value for value in values.to_pylist() if value is not None]
    if not known or not isinstance(known[0], int | str) or isinstance(known[0], bool):
        return ()
    # Text is ordered by its bytes, as in UTF-8; Python orders it by code points, which is the same.
    low, high = (pa.scalar(edge, field.type) for edge in (min(known), max(known)))
    return (SearchBound(field.path[0], low, high),)


def _is_plain(field: typed.Field) -> bool:
    """Whether the column is compared as it is stored; text may be of another width."""
    if len(field.path) != 1:
        return False
    return bool(field.type == field.source) or (
        pa.types.is_large_string(field.type)
        and (pa.types.is_string(field.source) or pa.types.is_string_view(field.source))
    )
