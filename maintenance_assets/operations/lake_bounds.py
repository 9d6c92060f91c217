"""What a condition says of columns, in the form in which the catalog keeps bounds."""

from collections.abc import Mapping
from itertools import chain

import pyarrow as pa

from maintenance_assets.catalog.key_bounds import Bound, KeyBound, KeyChoices
from maintenance_assets.catalog.statistics import encode_bound, is_bytes_or_text
from maintenance_assets.model.lakehouse import Column, PhysicalSchema, TableSchema
from maintenance_assets.planning import search_bounds as search
from maintenance_assets.planning.predicates import BoundPredicate

Physical = Mapping[int, PhysicalSchema]

_CERTAIN = 15
"""Bytes of a text that surely are in its upper bound, even if a writer has cut that."""


def key_bounds(
    predicate: BoundPredicate, schema: TableSchema, physical: Physical
) -> tuple[Bound, ...]:
    """What the database can rule files out by; the rest is done with what it returns."""
    found = (_stored(bound, schema, physical) for bound in search.search_bounds(predicate.tree))
    return tuple(bound for bound in found if bound is not None)


def _stored(bound: search.Bound, schema: TableSchema, physical: Physical) -> Bound | None:
    """None where nothing can be ruled out by it."""
    if isinstance(bound, search.SearchBound):
        return _of_column(bound, schema.require(bound.column), physical)
    each = []
    for choice in bound.each:
        parts = (_stored(part, schema, physical) for part in choice)
        each.append(tuple(part for part in parts if part is not None))
    return _joined(tuple(each)) if all(each) else None


def _joined(each: tuple[tuple[Bound, ...], ...]) -> Bound:
    """Choices of one column are looked up at once."""
    single = [choice[0] for choice in each if len(choice) == 1]
    columns = [bound for bound in single if isinstance(bound, KeyBound)]
    if len(columns) < len(each) or len({bound.field_id for bound in columns}) > 1:
        return KeyChoices(each)
    ranges = tuple(chain.from_iterable(bound.ranges for bound in columns))
    return KeyBound(columns[0].field_id, ranges, columns[0].unlike)


def _of_column(bound: search.SearchBound, column: Column, physical: Physical) -> Bound | None:
    low = None if bound.low is None else encode_bound(bound.low, upper=False)
    high = None if bound.high is None else encode_bound(bound.high, upper=True)
    if low is not None and is_bytes_or_text(column.type):
        low = low[:_CERTAIN]
    if low is None and high is None:
        return None
    unlike = tuple(number for number, p in physical.items() if not _is_alike(p, column))
    return KeyBound(column.field_id, ((low, high),), unlike)


def _is_alike(physical: PhysicalSchema, column: Column) -> bool:
    """Whether bounds of these files have the form of values of the column."""
    name = physical.name_of(column.field_id)
    type_ = column.type if name is None else physical.arrow.field(name).type
    if is_bytes_or_text(type_):
        return is_bytes_or_text(column.type)
    both_whole = pa.types.is_integer(type_) and pa.types.is_integer(column.type)
    return bool(type_ == column.type) or both_whole
