"""polars expressions: evaluated by polars, batch by batch, so they must work row by row.

What polars does is what counts: NaN equals NaN and is the greatest number, timestamps of different
units are compared in the coarser one, integers of a column wrap on overflow.
"""

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.foreign_polars_tree import UNKNOWN, polars_condition
from maintenance_assets.planning.typed import Typed

Array = Any
Node = Any  # a part of polars' own description of an expression, as JSON

_TRANSPARENT = frozenset({"BinaryExpr", "Ternary", "Cast", "Alias", "KeepName", "RenameAlias"})
_FUNCTIONS = frozenset(
    {"Abs", "AsStruct", "Atan2", "Ceil", "Clip", "Coalesce", "Exp", "FillNull", "Floor", "Log"}
    | {"Log1p", "MaxHorizontal", "MeanHorizontal", "MinHorizontal", "Negate", "Pow", "Replace"}
    | {"ReplaceStrict", "Round", "RoundSF", "Sign", "SumHorizontal", "Trigonometry", "Truncate"}
    | {"BinaryExpr", "StructExpr", "TemporalExpr"}
)
_BOOLEAN = frozenset(
    {"AllHorizontal", "AnyHorizontal", "IsBetween", "IsClose", "IsFinite", "IsIn", "IsInfinite"}
    | {"IsNan", "IsNotNan", "IsNotNull", "IsNull", "Not"}
)
_NOT_BY_ROW = {
    "StringExpr": frozenset({"ConcatVertical"}),
    "ListExpr": frozenset({"Sample", "Shuffle"}),
    "ArrayExpr": frozenset({"Sample", "Shuffle"}),
}
_ADVICE = (
    "Here every row is looked at by itself, so that the result does not depend on how files are "
    "read. Compute it beforehand, or say it in SQL"
)


@dataclass(frozen=True, slots=True, eq=False)
class PolarsExpression:
    """A polars Expr that works row by row."""

    expr: Any

    @property
    def library(self) -> str:
        """The name of the library."""
        return "polars"

    def names(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(dict.fromkeys(self.expr.meta.root_names()))

    def check_types(self, schema: pa.Schema) -> None:
        """ValueError for columns that polars cannot hold."""
        for field in schema:
            if not _holds(field.type):
                raise ValueError(
                    f"polars cannot hold column {field.name!r} of type {field.type}: use SQL"
                )

    def evaluate(self, table: pa.Table) -> Array:
        """Its value for each row."""
        import polars as pl

        try:
            frame = pl.from_arrow(_for_polars(table))
            found = frame.select(value=self.expr)["value"]  # type: ignore[union-attr]
        except (pl.exceptions.PolarsError, TypeError) as error:
            raise _failed(table, error) from error
        if len(found) == 1 != table.num_rows and self._is_constant():
            found = found.new_from_index(0, table.num_rows)
        if len(found) != table.num_rows:
            raise RewriteError(
                f"The polars expression gave {len(found)} values for {table.num_rows} rows"
            )
        return found.to_arrow(compat_level=pl.CompatLevel.oldest())

    def _is_constant(self) -> bool:
        return not self.names()

    def condition(self, schema: pa.Schema) -> Typed:
        """What is known of it as a condition."""
        try:
            return polars_condition(_description(self.expr), schema)
        except _OTHER_FORM:
            return UNKNOWN


def _failed(table: pa.Table, error: Exception) -> Exception:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    # Over no rows only types can be wrong: that is the schema, not the data.
    kind = RewriteError if table.num_rows else ValueError
    return kind(f"The polars expression cannot be evaluated: {message}")


def from_polars(expr: Any) -> PolarsExpression:
    """A polars Expr after a look inside; ValueError when it does not work row by row."""
    if expr.meta.has_multiple_outputs():
        raise ValueError("A polars expression with several results is not one: name the column")
    name = _suspect(_description(expr))
    if name is not None:
        raise ValueError(
            f"The polars expression uses {name}, which is not known to work row by row. {_ADVICE}"
        )
    return PolarsExpression(expr)


_OTHER_FORM = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What comes of reading the description of a polars that writes it in another way."""


def _suspect(node: Node) -> str | None:
    """The name of something that may look at more than one row."""
    try:
        return next(_suspects(node), None)
    except _OTHER_FORM:
        return "a form of expression that this version of polars describes in its own way"


def _description(expr: Any) -> Node:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return json.loads(expr.meta.serialize(format="json"))
    except RecursionError:
        raise ValueError("The polars expression is nested too deeply: use is_in or SQL") from None


def _suspects(root: Node) -> Iterator[str]:
    """The names of what may look at more than one row."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield _lower(node)
            continue
        ((kind, body),) = node.items()
        match kind:
            case "Column":
                continue
            case "Literal":
                if not body.keys() <= {"Scalar", "Dyn"}:
                    yield "a literal Series (is_in takes series.to_list())"
            case "Function":
                yield from _suspect_function(body)
                waiting.extend(body["input"])
            case "AnonymousFunction":
                if "ROW_SEPARABLE" not in body["options"]["flags"]:
                    yield "a Python function over whole columns (map_batches)"
                waiting.extend(body["input"])
            case "Eval":
                # What is evaluated inside a list stays inside its row.
                waiting.append(body["expr"])
            case _ if kind in _TRANSPARENT:
                waiting.extend(_inputs(kind, body))
            case _:
                yield _spelled(kind, body)


def _inputs(kind: str, body: Node) -> list[Node]:
    match kind:
        case "BinaryExpr":
            return [body["left"], body["right"]]
        case "Ternary":
            return [body["predicate"], body["truthy"], body["falsy"]]
        case "Alias":
            return [body[0]]
        case "KeepName":
            return [body]
        case _:
            return [body["expr"]]


def _spelled(kind: str, body: Node) -> str:
    inner = next(iter(body), "") if kind == "Agg" and isinstance(body, dict) else ""
    return _lower(inner or kind)


def _suspect_function(body: Node) -> Iterator[str]:
    function = body["function"]
    name, detail = _named(function)
    part, options = _named(detail)
    if name == "Boolean":
        if part not in _BOOLEAN:
            yield _lower(part)
        elif part == "IsIn" and "Literal" not in body["input"][1]:
            yield "is_in with a column"
    elif name in _NOT_BY_ROW:
        if part in _NOT_BY_ROW[name]:
            yield _lower(part)
        elif part == "Strptime" and options[1]["format"] is None:
            yield "a guess at the format of dates (name the format)"
    elif name not in _FUNCTIONS:
        yield _lower(name)


def _named(node: Node) -> tuple[str, Node]:
    """A name on its own, or with what belongs to it."""
    if isinstance(node, dict):
        return next(iter(node.items()), ("", None))
    return (node, None) if isinstance(node, str) else ("", None)


def _lower(name: str) -> str:
    """Cumulative sums are CumSum inside polars, and cum_sum to those who use it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _holds(type_: Any) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return _holds(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _holds(type_.value_type)
    if pa.types.is_nested(type_):
        return all(_holds(type_.field(i).type) for i in range(type_.num_fields))
    return not (pa.types.is_decimal256(type_) or pa.types.is_interval(type_))


def _for_polars(table: pa.Table) -> pa.Table:
    """With dates as dates: polars takes 64-bit ones for timestamps."""
    for index, field in enumerate(table.schema):
        if pa.types.is_date64(field.type):
            column = table.column(index).cast(pa.date32())
            table = table.set_column(index, field.name, column)
    return table
