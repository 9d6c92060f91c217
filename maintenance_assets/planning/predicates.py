"""Predicates: which rows are meant, said in SQL, as a pyarrow Expression or as a polars Expr.

Of SQL there is one meaning on every engine, that of `evaluation`. An expression of polars or
pyarrow means what its library makes of it. A row matches where the outcome is true: neither false
nor NULL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.binding import bind_condition
from maintenance_assets.planning.duckdb_condition import duckdb_condition
from maintenance_assets.planning.evaluation import Rows, broadcast, evaluate
from maintenance_assets.planning.expressions import Expression
from maintenance_assets.planning.foreign import BoundForeign, bind_foreign
from maintenance_assets.planning.foreign_kinds import foreign_expression
from maintenance_assets.planning.pruning import may_hold
from maintenance_assets.planning.sql_parser import parse_sql
from maintenance_assets.planning.typed import Typed, fields

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """A condition on rows, before any schema is known."""

    text: str
    """The SQL, or how another library shows its expression."""
    tree: Expression | None = None
    foreign: Any = None

    def bind(self, schema: pa.Schema) -> "BoundPredicate":
        """The condition over the columns of a schema; ValueError where it does not fit."""
        if self.foreign is not None:
            return _bind_foreign(self, schema)
        assert self.tree is not None
        tree = bind_condition(self.tree, schema, self.text)
        read = {field.path[0] for field in fields(tree)}
        columns = tuple(name for name in schema.names if name in read)
        return BoundPredicate(self.text, tree, columns, tuple(schema.names))

    def __str__(self) -> str:
        return self.text


def _bind_foreign(predicate: Predicate, schema: pa.Schema) -> "BoundPredicate":
    foreign = bind_foreign(predicate.foreign, schema)
    if not (pa.types.is_boolean(foreign.type) or pa.types.is_null(foreign.type)):
        raise ValueError(
            f"Expected a condition, but the {predicate.foreign.library} expression "
            f"{predicate.text} gives {foreign.type}"
        )
    tree = predicate.foreign.condition(schema)
    return BoundPredicate(predicate.text, tree, foreign.columns, tuple(schema.names), foreign)


@dataclass(frozen=True, slots=True, eq=False)
class BoundPredicate:
    """A condition that can be asked of batches and of ranges."""

    text: str
    tree: Typed
    columns: tuple[str, ...]
    """The top-level columns that it reads."""
    available: tuple[str, ...]
    """All columns of the schema."""
    foreign: BoundForeign | None = None

    def mask(self, batch: pa.RecordBatch) -> Array:
        """Where the condition is true; without nulls."""
        if self.foreign is not None:
            found = self.foreign.evaluate(batch)
        else:
            found = evaluate(self.tree, Rows.of(batch, fields(self.tree), self.text))
        return pc.fill_null(broadcast(found, batch.num_rows).cast(pa.bool_()), False)

    def may_match(
        self, ranges: Mapping[str, ColumnRange], constants: Mapping[str, Any] | None = None
    ) -> bool:
        """False only if certainly no row matches that has these ranges and constant columns.

        A file without the column has to be given as a range that is all null; a column that is
        not mentioned can be anything. Constants are Arrow scalars; text of a partition path is
        read as the type of its column only where there is no doubt about it.
        """
        return may_hold(self.tree, ranges, constants or {})

    def duckdb_sql(self) -> str | None:
        """The same condition for DuckDB over the files; None where it may see it differently."""
        if self.foreign is not None:
            return None
        return duckdb_condition(self.tree, self.available)


def parse_predicate(value: Any) -> Predicate:
    """A predicate from what a caller gave; ValueError that points at what is wrong with it."""
    if isinstance(value, Predicate):
        return value
    if isinstance(value, str):
        return Predicate(value, parse_sql(value))
    foreign = foreign_expression(value)
    if foreign is None:
        raise ValueError(
            "A predicate is SQL text, a pyarrow.compute.Expression or a polars.Expr, "
            f"not {type(value).__name__}"
        )
    return Predicate(str(value), foreign=foreign)
