"""Values for columns: literals, and expressions over the row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.assigning import (
    assign,
    check_assignable,
    literal_scalar,
    natural_type,
)
from maintenance_assets.planning.binding import bind_expression
from maintenance_assets.planning.evaluation import Rows, evaluate, read_field
from maintenance_assets.planning.expressions import Expression, on_one_line
from maintenance_assets.planning.families import ArrowType, plain_array, plain_type
from maintenance_assets.planning.foreign import BoundForeign, bind_foreign
from maintenance_assets.planning.foreign_kinds import foreign_expression
from maintenance_assets.planning.sql_parser import parse_sql
from maintenance_assets.planning.typed import Constant, Field, Typed, fields

Array = Any


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """Text that is an SQL expression, where text alone would be a literal."""

    text: str


def sql(text: str) -> SqlExpression:
    """Mark text as an SQL expression rather than a literal: `sql("best_ask - best_bid")`."""
    if not isinstance(text, str):
        raise ValueError(f"sql() takes text, not {type(text).__name__}")
    return SqlExpression(text)


@dataclass(frozen=True, slots=True)
class SqlValue:
    """An SQL expression, before any schema is known."""

    text: str
    tree: Expression

    def bind(
        self, schema: pa.Schema, target: ArrowType | None = None, *, column: str = ""
    ) -> "BoundValue":
        """The expression over the columns of a schema, for a column of type `target`."""
        tree = bind_expression(self.tree, schema, self.text)
        read = {field.path[0] for field in fields(tree)}
        columns = tuple(name for name in schema.names if name in read)
        with _Naming(column, ValueError):
            if isinstance(tree, Constant):
                scalar = literal_scalar(tree.scalar, target or natural_type(tree.type))
                return BoundLiteral(columns, scalar.type, scalar)
            type_ = target or _own_type(tree)
            if not _is_copy(tree, type_):
                check_assignable(tree.type, type_)
        return BoundSql(columns, type_, self.text, tree, column)


def _own_type(tree: Typed) -> ArrowType:
    """A copy of a column keeps its type."""
    return tree.source if isinstance(tree, Field) else natural_type(tree.type)


def _is_copy(tree: Typed, target: ArrowType) -> bool:
    return isinstance(tree, Field) and tree.source == target


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """The same value for every row."""

    value: Any

    def bind(
        self, schema: pa.Schema, target: ArrowType | None = None, *, column: str = ""
    ) -> "BoundValue":
        """The value in the type `target`, or in one of its own."""
        with _Naming(column, ValueError):
            scalar = literal_scalar(self.value, target)
        return BoundLiteral((), scalar.type, scalar)


@dataclass(frozen=True, slots=True, eq=False)
class ForeignValue:
    """An expression of polars or pyarrow."""

    foreign: Any

    def bind(
        self, schema: pa.Schema, target: ArrowType | None = None, *, column: str = ""
    ) -> "BoundValue":
        """The expression over the columns of a schema, for a column of type `target`."""
        foreign = bind_foreign(self.foreign, schema)
        with _Naming(column, ValueError):
            if target is not None:
                check_assignable(plain_type(foreign.type), target)
        type_ = target or natural_type(plain_type(foreign.type))
        return BoundForeignValue(foreign.columns, type_, foreign, column)


Value = SqlValue | LiteralValue | ForeignValue


@dataclass(frozen=True, slots=True)
class BoundSql:
    """An SQL expression that can be evaluated over batches."""

    columns: tuple[str, ...]
    """The top-level columns that it reads."""
    type: ArrowType
    text: str
    tree: Typed
    column: str

    def evaluate(self, batch: pa.RecordBatch) -> Array:
        """The value for each row; RewriteError where one does not fit the column."""
        if isinstance(self.tree, Field) and self.tree.source == self.type:
            return assign(read_field(batch, self.tree), self.type)
        with _Naming(self.column, RewriteError):
            values = evaluate(self.tree, Rows.of(batch, fields(self.tree), self.text))
            return assign(values, self.type)


@dataclass(frozen=True, slots=True)
class BoundLiteral:
    """The same value for every row, in the type of its column."""

    columns: tuple[str, ...]
    type: ArrowType
    scalar: Any

    def evaluate(self, batch: pa.RecordBatch) -> Array:
        """The value as often as there are rows."""
        return pa.repeat(self.scalar, batch.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class BoundForeignValue:
    """An expression of another library that can be evaluated over batches."""

    columns: tuple[str, ...]
    type: ArrowType
    foreign: BoundForeign
    column: str

    def evaluate(self, batch: pa.RecordBatch) -> Array:
        """The value for each row; RewriteError where one does not fit the column."""
        with _Naming(self.column, RewriteError):
            values = self.foreign.evaluate(batch)
            return assign(plain_array(values, plain_type(values.type)), self.type)


BoundValue = BoundSql | BoundLiteral | BoundForeignValue


class _Naming:
    """Name the column in an error about a value, on one line: others put it into their own."""

    def __init__(self, column: str, kind: type[Exception]) -> None:
        self._prefix = f"Column {column!r}: " if column else ""
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, pa.ArrowException | ValueError | OverflowError | RewriteError):
            raise self._kind(f"{self._prefix}{on_one_line(str(error))}") from error


def parse_value(value: Any) -> Value:
    """A value from what a caller gave: text is a literal, `sql(...)` an expression."""
    if isinstance(value, SqlValue | LiteralValue | ForeignValue):
        return value
    if isinstance(value, SqlExpression):
        return SqlValue(value.text, parse_sql(value.text))
    foreign = foreign_expression(value)
    return LiteralValue(value) if foreign is None else ForeignValue(foreign)


def derived_columns(columns: Mapping[str, Any]) -> dict[str, Value]:
    """Expressions by the name of the column they make; here text is SQL."""
    return {
        name: parse_value(sql(value) if isinstance(value, str) else value)
        for name, value in columns.items()
    }
