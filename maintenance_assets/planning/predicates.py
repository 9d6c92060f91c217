"""Predicates: which rows are meant, said in SQL, as a pyarrow Expression or as a polars Expr."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.binding import bind_condition
from maintenance_assets.planning.evaluation import Rows, evaluate
from maintenance_assets.planning.expressions import Expression
from maintenance_assets.planning.sql_parser import parse_sql
from maintenance_assets.planning.typed import Typed, fields


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on rows, before any schema is known."""

    text: str
    tree: Expression

    def bind(self, schema: pa.Schema) -> "BoundPredicate":
        """The condition over the columns of a schema; ValueError where it does not fit."""
        tree = bind_condition(self.tree, schema, self.text)
        read = {field.path[0] for field in fields(tree)}
        return BoundPredicate(self.text, tree, tuple(n for n in schema.names if n in read))


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    """A condition that can be asked of batches and of ranges."""

    text: str
    tree: Typed
    columns: tuple[str, ...]
    """The top-level columns that it reads."""

    def mask(self, batch: pa.RecordBatch) -> Any:
        """Where the condition is true: neither false nor unknown."""
        rows = Rows.of(batch, fields(self.tree), self.text)
        return pc.fill_null(evaluate(self.tree, rows), False)

    def may_match(
        self, ranges: Mapping[str, ColumnRange], constants: Mapping[str, Any] | None = None
    ) -> bool:
        """False only if no row with these ranges and constant columns can match."""
        return True

    def duckdb_sql(self) -> str | None:
        """The same condition for DuckDB; None where it might see it differently."""
        return None


def parse_predicate(value: Any) -> Predicate:
    """A predicate from what a caller gave; ValueError that points at what is wrong with it."""
    if not isinstance(value, str):
        raise ValueError("only SQL text for now")
    return Predicate(value, parse_sql(value))
