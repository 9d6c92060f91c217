"""Evaluate a bound expression over a batch with Arrow's kernels: the one meaning on all engines.

Logic is three-valued. AND and OR are read from left to right, and CASE branch by branch: what
could fail is only evaluated on the rows where it matters, so a guard in front of it works.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning import typed
from maintenance_assets.planning.evaluation_arithmetic import arithmetic, negate
from maintenance_assets.planning.evaluation_cast import cast, cast_exactly
from maintenance_assets.planning.evaluation_compare import compare, is_in
from maintenance_assets.planning.evaluation_functions import call
from maintenance_assets.planning.evaluation_text import like
from maintenance_assets.planning.expressions import Span, pointing_at
from maintenance_assets.planning.families import Array, plain_array
from maintenance_assets.planning.typed import Typed

# Not pa.scalar: it loads pandas, and that is not for an import to do.
_NULL = pa.nulls(1, pa.bool_())[0]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows to evaluate over, and the text that errors point into."""

    count: int
    columns: dict[tuple[str, ...], Array]
    text: str = ""

    @classmethod
    def of(cls, batch: pa.RecordBatch, fields: Sequence[typed.Field], text: str) -> "Rows":
        """The fields of a batch in plain form; a column that it does not have is all null."""
        columns = {field.path: _read(batch, field) for field in fields}
        return cls(batch.num_rows, columns, text)

    def where(self, mask: Any) -> "Rows":
        """The rows that a mask without nulls selects."""
        chosen = {path: array.filter(mask) for path, array in self.columns.items()}
        return Rows(mask.true_count, chosen, self.text)


def _read(batch: pa.RecordBatch, field: typed.Field) -> Array:
    return plain_array(read_field(batch, field), field.type)


def read_field(batch: pa.RecordBatch, field: typed.Field) -> Array:
    """The values of a field as the batch has them; all null where it has none."""
    indices = batch.schema.get_all_field_indices(field.path[0])
    if not indices:
        return pa.nulls(batch.num_rows, field.source)
    array = batch.column(indices[0])
    for name in field.path[1:]:
        if pa.types.is_null(array.type) or array.type.get_field_index(name) < 0:
            return pa.nulls(batch.num_rows, field.source)
        array = pc.struct_field(array, name)
    return array


def evaluate(node: Typed, rows: Rows) -> Array:
    """The value of an expression for each row."""
    found = broadcast(_value(node, rows), rows.count)
    if len(found) != rows.count:
        raise RewriteError(f"{len(found)} values came out of {rows.count} rows")
    return found


def broadcast(value: Any, count: int) -> Array:
    """An array of as many values."""
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def _value(node: Typed, rows: Rows) -> Any:
    """An array, or a scalar where the value is the same for all rows."""
    match node:
        case typed.Constant():
            return node.scalar
        case typed.Field():
            return rows.columns[node.path]
        case typed.And() | typed.Or():
            return _junction(node, rows)
        case typed.Case():
            return _case(node, rows)
        case typed.Unknowable():
            raise TypeError("a condition of which nothing is known has no value")
        case typed.Compare():
            return compare(node.operator, evaluate(node.left, rows), _value(node.right, rows))
        case typed.Arithmetic() | typed.Negate() | typed.Cast() | typed.Call():
            return _fallible(node, rows)
        case _:
            return _test(node, evaluate(node.operand, rows))


def _test(node: Any, operand: Array) -> Array:
    match node:
        case typed.Not():
            return pc.invert(operand)
        case typed.IsNull():
            return pc.is_null(operand)
        case typed.IsTruth():
            return pc.fill_null(operand if node.value else pc.invert(operand), False)
        case typed.Decided():
            return pc.if_else(pc.is_valid(operand), pa.scalar(node.outcome), _NULL)
        case typed.Member():
            found = is_in(operand, node.values)
            return pc.if_else(pc.equal(found, False), _NULL, found) if node.has_null else found
        case _:
            return like(operand, node.parts, node.ignore_case)


def _fallible(node: Any, rows: Rows) -> Any:
    inputs = [evaluate(child, rows) for child in typed.children(node)]
    try:
        match node:
            case typed.Arithmetic():
                return arithmetic(node.operator, inputs[0], inputs[1], node.type)
            case typed.Negate():
                return negate(inputs[0], node.type)
            case typed.Cast():
                return (cast_exactly if node.exact else cast)(inputs[0], node.type)
            case _:
                return call(node.name, inputs, node.options, node.type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _failure(error, rows.text, node.span) from error


def _failure(error: Exception, text: str, span: Span) -> RewriteError:
    message = str(error).splitlines()[0]
    return RewriteError(str(pointing_at(text, span, message)) if text else message)


def _junction(node: typed.And | typed.Or, rows: Rows) -> Array:
    """AND or OR; an operand that can fail is only evaluated where the outcome is still open."""
    conjunction = isinstance(node, typed.And)
    combine = pc.and_kleene if conjunction else pc.or_kleene
    found = evaluate(node.operands[0], rows)
    for operand in node.operands[1:]:
        if typed.can_fail(operand):
            still_open = pc.fill_null(pc.equal(found, conjunction), True)
            found = combine(found, _scattered(operand, rows, still_open))
        else:
            found = combine(found, evaluate(operand, rows))
    return found


def _scattered(node: Typed, rows: Rows, mask: Any) -> Array:
    """The values of the rows of a mask in their places; null elsewhere."""
    if mask.true_count == rows.count:
        return evaluate(node, rows)
    values = evaluate(node, rows.where(mask))
    places = np.cumsum(np.asarray(mask)) - 1
    return values.take(pa.array(places, mask=~np.asarray(mask)))


def _case(node: typed.Case, rows: Rows) -> Array:
    rest = pa.repeat(True, rows.count)
    choices, values = [], []
    for condition, value in node.branches:
        holds = pc.fill_null(_scattered(condition, rows, rest), False)
        choices.append(holds)
        values.append(_scattered(value, rows, holds))
        rest = pc.and_not(rest, holds)
    result = _scattered(node.otherwise, rows, rest)
    for holds, value in zip(choices, values, strict=True):
        result = pc.if_else(holds, value, result)
    return result
