"""Changes as values: which rows are meant, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.key_index import KeyIndex
from maintenance_assets.planning.moves import Moves
from maintenance_assets.planning.predicates import BoundPredicate
from maintenance_assets.planning.values import BoundValue

Ranges = Mapping[str, ColumnRange]
Constants = Mapping[str, Any]
Assigned = tuple[tuple[str, BoundValue], ...]

# -- which rows --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsWhere:
    """Rows for which a predicate is true."""

    predicate: BoundPredicate
    schema: pa.Schema
    """The columns that have to be read, in the types of the dataset."""
    moving: Assigned = ()
    """New values of partition columns."""
    moves: Moves | None = None

    def may_match(self, ranges: Ranges, constants: Constants) -> bool:
        """False only where certainly no row is meant."""
        return self.predicate.may_match(ranges, constants)


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """Rows whose key occurs in new data."""

    index: KeyIndex
    schema: pa.Schema
    """The key columns, in the types of the dataset."""

    def may_match(self, ranges: Ranges, constants: Constants) -> bool:
        """False only where certainly no row is meant."""
        candidates = self.index.candidates(ranges, constants)
        return bool(self.index.rows) if candidates is None else bool(len(candidates))


Finder = RowsWhere | RowsByKey

# -- what becomes of them ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows for which a predicate is true go."""

    predicate: BoundPredicate
    schema: pa.Schema
    """The columns that the predicate reads, in the types of the dataset."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Rows for which a predicate is true get new values, all made of the row as it was."""

    predicate: BoundPredicate
    schema: pa.Schema
    """The columns that predicate and values read, in the types of the dataset."""
    values: Assigned
    moves: Moves | None = None


@dataclass(frozen=True, slots=True)
class Merging:
    """Rows whose key occurs in new data get values from there."""

    keys: tuple[str, ...]
    schema: pa.Schema
    """The key columns, in the types of the dataset."""
    updates: tuple[str, ...]
    moves: Moves | None = None
    one_copy: bool = False
    """Of several rows with the same key, one is left."""
    source: str = ""
    """An Arrow file with the keys and the updates."""


Rule = Deletion | Assignment | Merging
