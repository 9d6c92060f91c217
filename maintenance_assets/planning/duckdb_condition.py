"""A condition as DuckDB SQL, where DuckDB over the Parquet files certainly sees it the same way.

The text is written from the tree: the user's own text never gets here. Left out on purpose:
- floats: DuckDB prunes by footers, which do not mention NaN, so `x > 5` loses the NaN it holds
  to be greater (measured with DuckDB 2.0: it returns no row for a file that has one);
- what can fail on a value, because DuckDB decides which rows it looks at;
- nested fields, and types that DuckDB reads as another one.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.families import Family, family
from maintenance_assets.planning.typed import Typed

_INTEGERS = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
}
_OPERATORS = {"same": "IS NOT DISTINCT FROM"}


class _DifferentError(Exception):
    """DuckDB might see it differently."""


def duckdb_condition(condition: Typed, names: tuple[str, ...]) -> str | None:
    """The condition as SQL over the columns of a schema; None where it is not certain."""
    # DuckDB takes names that differ in case only for one.
    folded = [name.casefold() for name in names]
    clashing = frozenset(name for name in names if folded.count(name.casefold()) > 1)
    try:
        return _sql(condition, clashing)
    except _DifferentError:
        return None


def _sql(node: Typed, clashing: frozenset[str]) -> str:
    match node:
        case typed.And() | typed.Or():
            word = " AND " if isinstance(node, typed.And) else " OR "
            return f"({word.join(_sql(operand, clashing) for operand in node.operands)})"
        case typed.Not():
            return f"(NOT {_sql(node.operand, clashing)})"
        case typed.IsTruth():
            return f"({_sql(node.operand, clashing)} IS {'TRUE' if node.value else 'FALSE'})"
        case typed.IsNull():
            return f"({_nullable(node.operand, clashing)} IS NULL)"
        case typed.Decided():
            operand = _nullable(node.operand, clashing)
            return f"(CASE WHEN {operand} IS NOT NULL THEN {str(node.outcome).upper()} END)"
        case typed.Compare():
            _check_same(node.left, node.right)
            operator = _OPERATORS.get(node.operator, node.operator)
            return f"({_value(node.left, clashing)} {operator} {_value(node.right, clashing)})"
        case typed.Member():
            items = [_literal(item) for item in node.values] + ["NULL"] * node.has_null
            operand = _value(node.operand, clashing)
            return f"({operand} IN ({', '.join(items)}))" if items else _never(operand)
        case typed.Like():
            return _like(node, clashing)
        case typed.Field() | typed.Constant():
            return _value(node, clashing)
        case _:
            raise _DifferentError


def _never(operand: str) -> str:
    return f"(CASE WHEN {operand} IS NOT NULL THEN FALSE END)"


def _check_same(left: Typed, right: Typed) -> None:
    integers = {family(left.type), family(right.type)} == {Family.INTEGER}
    if left.type != right.type and not integers:
        raise _DifferentError


def _value(node: Typed, clashing: frozenset[str]) -> str:
    if isinstance(node, typed.Field):
        return _column(node, clashing, _is_read_alike(node.source))
    if isinstance(node, typed.Constant):
        return _literal(node.scalar)
    if pa.types.is_boolean(node.type):
        return _sql(node, clashing)
    raise _DifferentError


def _nullable(node: Typed, clashing: frozenset[str]) -> str:
    """Something of which only matters whether it is NULL."""
    if isinstance(node, typed.Field):
        return _column(node, clashing, not isinstance(node.source, pa.BaseExtensionType))
    return _value(node, clashing)


def _column(field: typed.Field, clashing: frozenset[str], certain: bool) -> str:
    name = field.path[0]
    if len(field.path) > 1 or name in clashing or "\0" in name or not certain:
        raise _DifferentError
    return '"' + name.replace('"', '""') + '"'


def _is_read_alike(type_: Any) -> bool:
    """Whether DuckDB reads a column of Parquet with the values that Arrow reads."""
    if isinstance(type_, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(type_):
        return family(type_.value_type) is Family.TEXT or pa.types.is_string(type_.value_type)
    if pa.types.is_decimal(type_):
        return type_.precision <= 38
    if pa.types.is_timestamp(type_):
        return type_.unit == "us"
    return any(check(type_) for check in _ALIKE)


_ALIKE: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_date32,
)


def _literal(scalar: Any) -> str:
    """A literal with its type."""
    type_ = scalar.type
    if not scalar.is_valid:
        return "NULL"
    match family(type_):
        case Family.BOOLEAN:
            return str(scalar.as_py()).upper()
        case Family.INTEGER:
            return f"CAST({_quoted(str(scalar.as_py()))} AS {_INTEGERS[type_]})"
        case Family.DECIMAL if type_.precision <= 38:
            shape = f"{type_.precision}, {type_.scale}"
            return f"CAST({_quoted(format(scalar.as_py(), 'f'))} AS DECIMAL({shape}))"
        case Family.TEXT:
            return _quoted(scalar.as_py())
        case Family.BINARY:
            return _blob(scalar.as_py())
        case Family.DATE | Family.TIMESTAMP | Family.INSTANT:
            return _moment(scalar)
        case _:
            raise _DifferentError


def _quoted(text: str) -> str:
    if "\0" in text:
        raise _DifferentError
    return "'" + text.replace("'", "''") + "'"


def _blob(value: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"


def _moment(scalar: Any) -> str:
    if not pa.types.is_date(scalar.type) and scalar.type.unit != "us":
        raise _DifferentError
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError) as error:
        # Outside the years 1 to 9999, where notations part.
        raise _DifferentError from error
    if pa.types.is_date(scalar.type):
        return f"DATE '{value.isoformat()}'"
    if scalar.type.tz is None:
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    utc = scalar.cast(pa.timestamp("us", "UTC")).as_py()
    return f"TIMESTAMPTZ '{utc.isoformat(' ')}'"


def _like(node: typed.Like, clashing: frozenset[str]) -> str:
    if node.ignore_case:
        raise _DifferentError
    pattern = "".join(_pattern(part) for part in node.parts)
    return f"({_value(node.operand, clashing)} LIKE {_quoted(pattern)} ESCAPE '!')"


def _pattern(part: str | int | None) -> str:
    if part is None:
        return "%"
    if isinstance(part, int):
        return "_" * part
    return part.replace("!", "!!").replace("%", "!%").replace("_", "!_")
