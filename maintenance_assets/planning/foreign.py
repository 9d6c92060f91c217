"""Expressions of other libraries: evaluated by them, and read here as far as pruning needs."""

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from maintenance_assets.planning.families import ArrowType
from maintenance_assets.planning.typed import Typed

Array = Any


class ForeignExpression(Protocol):
    """An expression that another library evaluates, row by row."""

    @property
    def library(self) -> str:
        """The name of the library."""
        ...

    def names(self) -> tuple[str, ...]:
        """The top-level columns that it reads."""
        ...

    def check_types(self, schema: pa.Schema) -> None:
        """ValueError for columns that the library cannot hold."""
        ...

    def evaluate(self, table: pa.Table) -> Array:
        """Its value for each row of a table that has just its columns."""
        ...

    def condition(self, schema: pa.Schema) -> Typed:
        """What is known of it as a condition; only for pruning."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BoundForeign:
    """A foreign expression over the columns of a schema."""

    expression: Any
    schema: pa.Schema
    """The columns that it reads."""
    type: ArrowType

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def evaluate(self, batch: pa.RecordBatch) -> Array:
        """Its value for each row, in `type`."""
        columns = [_column(batch, field) for field in self.schema]
        # Without any column a table would forget how many rows it has.
        rows = pa.table([*columns, pa.nulls(batch.num_rows)], names=[*self.schema.names, _ROWS])
        found = self.expression.evaluate(rows)
        return found if found.type == self.type else found.cast(self.type)


_ROWS = "__rows__"


def bind_foreign(expression: ForeignExpression, schema: pa.Schema) -> BoundForeign:
    """The expression over a schema; ValueError where it does not fit."""
    names = expression.names()
    for name in names:
        if schema.names.count(name) != 1:
            raise ValueError(
                f"Unknown column {name!r} in the {expression.library} expression. "
                f"Available columns: {', '.join(schema.names)}"
            )
    read = pa.schema([field for field in schema if field.name in names])
    expression.check_types(read)
    empty = [pa.nulls(0, field.type) for field in read]
    table = pa.table([*empty, pa.nulls(0)], names=[*read.names, _ROWS])
    return BoundForeign(expression, read, expression.evaluate(table).type)


def _column(batch: pa.RecordBatch, field: pa.Field) -> Array:
    indices = batch.schema.get_all_field_indices(field.name)
    if not indices:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(indices[0])
    if array.type == field.type:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(field.type)
