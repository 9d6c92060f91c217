"""Predicates: which rows are meant, said in SQL, as a pyarrow Expression or as a polars Expr."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange


@dataclass(frozen=True, slots=True)
class Predicate:
    text: str

    def bind(self, schema: pa.Schema) -> "BoundPredicate":
        import sqlglot

        tree = sqlglot.parse_one(self.text, dialect="duckdb")
        names = {c.name for c in tree.find_all(sqlglot.exp.Column)}
        for name in names:
            if name not in schema.names:
                raise ValueError(f"Unknown column {name!r}. Available columns: {schema.names}")
        return BoundPredicate(self.text, tuple(n for n in schema.names if n in names))


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    text: str
    columns: tuple[str, ...]

    def mask(self, batch: pa.RecordBatch) -> Any:
        import duckdb

        rows = pa.table([*batch.columns], names=batch.schema.names)
        with duckdb.connect() as con:
            con.register("rows", rows)
            found = con.sql(f"select ({self.text}) as m from rows").to_arrow_table()["m"]
        return pc.fill_null(found.cast(pa.bool_()), False).combine_chunks()

    def may_match(
        self, ranges: Mapping[str, ColumnRange], constants: Mapping[str, Any] | None = None
    ) -> bool:
        return True

    def duckdb_sql(self) -> str | None:
        return self.text


def parse_predicate(value: Any) -> Predicate:
    if not isinstance(value, str):
        raise ValueError("only SQL text for now")
    return Predicate(value)
