"""Values of an update: literals and expressions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SqlExpression:
    text: str


def sql(text: str) -> SqlExpression:
    """Mark text as an SQL expression rather than a literal."""
    return SqlExpression(text)


@dataclass(frozen=True, slots=True)
class Value:
    value: Any

    def bind(self, schema: pa.Schema, target: Any = None, *, column: str = "") -> "BoundValue":
        if isinstance(self.value, SqlExpression):
            import sqlglot

            tree = sqlglot.parse_one(self.value.text, dialect="duckdb")
            names = {c.name for c in tree.find_all(sqlglot.exp.Column)}
            probe = _run(self.value.text, schema.empty_table())
            return BoundValue(
                self.value, tuple(n for n in schema.names if n in names), target or probe.type
            )
        scalar = pa.scalar(self.value, target)
        return BoundValue(self.value, (), scalar.type)


def _run(text: str, rows: Any) -> Any:
    import duckdb

    with duckdb.connect() as con:
        con.register("rows", rows)
        return con.sql(f"select ({text}) as v from rows").to_arrow_table()["v"].combine_chunks()


@dataclass(frozen=True, slots=True)
class BoundValue:
    value: Any
    columns: tuple[str, ...]
    type: Any

    def evaluate(self, batch: Any) -> Any:
        if isinstance(self.value, SqlExpression):
            rows = pa.table([*batch.columns], names=batch.schema.names)
            return _run(self.value.text, rows).cast(self.type)
        return pa.repeat(pa.scalar(self.value, self.type), batch.num_rows)


def parse_value(value: Any) -> Value:
    return Value(value)


def derived_columns(columns: Mapping[str, Any]) -> dict[str, Value]:
    return {
        name: Value(sql(value) if isinstance(value, str) else value)
        for name, value in columns.items()
    }
