"""What a polars expression says about ranges, read from polars' own description of it.

Only what polars is known to evaluate exactly as written here is translated; the rest is unknowable,
and an unknowable part never prunes a file.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from maintenance_assets.planning import typed
from maintenance_assets.planning.binding import compare_typed, field_at, member_of
from maintenance_assets.planning.evaluation_compare import mirrored
from maintenance_assets.planning.expressions import Span
from maintenance_assets.planning.families import Family, family, plain_type, unit_nanoseconds
from maintenance_assets.planning.moments import moment
from maintenance_assets.planning.typed import Compare, Constant, Field, Typed

Node = Any
UNKNOWN = typed.Unknowable()
_DEPTH = 100
_NOWHERE = Span(0, 0)
_OPERATORS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_PARTS = {"Year": "year", "Month": "month", "Day": "day", "Hour": "hour", "Quarter": "quarter"}
_UNITS = {"Nanoseconds": "ns", "Microseconds": "us", "Milliseconds": "ms"}
_EXACT_INTEGERS = 2**52


def polars_condition(node: Node, schema: pa.Schema, depth: int = 0) -> Typed:
    """A condition as far as it is known."""
    if depth > _DEPTH or not isinstance(node, dict):
        return UNKNOWN
    ((kind, body),) = node.items()
    match kind:
        case "BinaryExpr" if body["op"] in ("And", "Or"):
            operands = [
                polars_condition(part, schema, depth + 1) for part in _chain(node, body["op"])
            ]
            return (typed.And if body["op"] == "And" else typed.Or)(tuple(operands))
        case "BinaryExpr":
            return _binary(body, schema)
        case "Column" | "Literal":
            found = _value(node, schema)
            return found if found is not None and pa.types.is_boolean(found.type) else UNKNOWN
        case "Alias":
            return polars_condition(body[0], schema, depth + 1)
        case "Function":
            return _function(body, schema, depth)
        case _:
            return UNKNOWN


def _chain(node: Node, operator: str) -> list[Node]:
    """The operands of the same operator, however many: polars nests each pair in the next."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        inner = one.get("BinaryExpr") if isinstance(one, dict) else None
        if inner is not None and inner["op"] == operator:
            waiting.extend((inner["right"], inner["left"]))
        else:
            found.append(one)
    return found


def _binary(body: Node, schema: pa.Schema) -> Typed:
    left, right = _value(body["left"], schema), _value(body["right"], schema)
    operator = _OPERATORS.get(body["op"], "")
    if left is None or right is None or not operator:
        return UNKNOWN
    if isinstance(left, Constant):
        left, right, operator = right, left, mirrored(operator)
    return _compare(operator, left, right)


def _compare(operator: str, operand: Typed, other: Typed) -> Typed:
    if not isinstance(other, Constant) or isinstance(operand, Constant):
        return UNKNOWN
    own, theirs = family(operand.type), family(other.type)
    if not other.scalar.is_valid:
        return UNKNOWN
    if own is theirs and own in (Family.TIMESTAMP, Family.INSTANT):
        return _compare_moments(operator, operand, other)
    if own is theirs is Family.TEXT and operator in ("=", "<>"):
        return compare_typed(operator, operand, other)
    return compare_typed(operator, operand, other) if _is_exact(operand, other) else UNKNOWN


def _is_text(constant: Constant) -> bool:
    return family(constant.type) is Family.TEXT


def _is_exact(operand: Typed, other: Constant) -> bool:
    """Whether polars compares these without rounding either."""
    own, theirs = family(operand.type), family(other.type)
    value = other.scalar.as_py()
    match (own, theirs):
        case (Family.INTEGER, Family.INTEGER):
            return value >= 0 or not pa.types.is_uint64(operand.type)
        case (Family.INTEGER, Family.FLOAT) | (Family.FLOAT, Family.INTEGER):
            single = pa.types.is_float32(operand.type)
            return not single and abs(value) < _EXACT_INTEGERS
        case (Family.FLOAT, Family.FLOAT):
            return pa.types.is_float64(operand.type)
        case (Family.TEXT, Family.TEXT):
            # Categories have an order of their own.
            return not (isinstance(operand, Field) and pa.types.is_dictionary(operand.source))
        case (Family.BOOLEAN | Family.DATE | Family.TIME | Family.BINARY, _):
            return own is theirs
        case _:
            return False


def _compare_moments(operator: str, operand: Typed, other: Constant) -> Typed:
    """polars compares in the coarser unit, and what is finer is floored."""
    unit = unit_nanoseconds(operand.type)
    count = other.scalar.cast(pa.int64()).as_py() * unit_nanoseconds(other.type)
    length = max(unit, unit_nanoseconds(other.type))
    low = count // length * length
    if unit == length:
        return _at(operator, operand, low // unit)
    first, after = low // unit, (low + length) // unit
    match operator:
        case "=" | "<>":
            within = typed.And((_at(">=", operand, first), _at("<", operand, after)))
            return within if operator == "=" else typed.Not(within)
        case "<" | ">=":
            return _at(operator, operand, first)
        case _:
            return _at("<" if operator == "<=" else ">=", operand, after)


def _at(operator: str, operand: Typed, count: int) -> Typed:
    if not -(2**63) <= count < 2**63:
        return UNKNOWN
    return Compare(operator, operand, Constant(moment(count, operand.type)))


def _function(body: Node, schema: pa.Schema, depth: int) -> Typed:
    function, inputs = body["function"], body["input"]
    if not isinstance(function, dict):
        return UNKNOWN
    ((name, detail),) = function.items()
    if name == "StringExpr" and detail == "StartsWith":
        return _starts_with(inputs, schema)
    if name != "Boolean":
        return UNKNOWN
    part, options = (detail, {}) if isinstance(detail, str) else next(iter(detail.items()))
    if part in ("AllHorizontal", "AnyHorizontal"):
        operands = tuple(polars_condition(one, schema, depth + 1) for one in inputs)
        return typed.And(operands) if part == "AllHorizontal" else typed.Or(operands)
    if part == "Not":
        return typed.Not(polars_condition(inputs[0], schema, depth + 1))
    rule = _BOOLEAN.get(part)
    return UNKNOWN if rule is None else rule(inputs, options, schema)


def _starts_with(inputs: list[Node], schema: pa.Schema) -> Typed:
    operand, prefix = _value(inputs[0], schema), _value(inputs[1], schema)
    if not isinstance(operand, Field) or not isinstance(prefix, Constant):
        return UNKNOWN
    text = prefix.scalar.as_py()
    if family(operand.type) is not Family.TEXT or not isinstance(text, str):
        return UNKNOWN
    return typed.Like(operand, (text, None) if text else (None,), False)


def _is_null(inputs: list[Node], _options: Node, schema: pa.Schema) -> Typed:
    operand = _value(inputs[0], schema)
    return UNKNOWN if operand is None else typed.IsNull(operand)


def _is_not_null(inputs: list[Node], options: Node, schema: pa.Schema) -> Typed:
    return typed.Not(_is_null(inputs, options, schema))


def _is_between(inputs: list[Node], options: Node, schema: pa.Schema) -> Typed:
    operand, low, high = (_value(one, schema) for one in inputs)
    if operand is None or low is None or high is None:
        return UNKNOWN
    closed = options.get("closed")
    return typed.And(
        (
            _compare(">=" if closed in ("Both", "Left") else ">", operand, low),
            _compare("<=" if closed in ("Both", "Right") else "<", operand, high),
        )
    )


def _is_in(inputs: list[Node], options: Node, schema: pa.Schema) -> Typed:
    operand = _value(inputs[0], schema)
    items = _items(inputs[1])
    if not isinstance(operand, Field) or items is None or options.get("nulls_equal"):
        return UNKNOWN
    constants = [Constant(item) for item in items if item.is_valid]
    dictionary = pa.types.is_dictionary(operand.source)
    if not all(_is_exact(operand, one) or (dictionary and _is_text(one)) for one in constants):
        return UNKNOWN
    return member_of(operand, constants)


def _items(node: Node) -> Any:
    """The items of a literal list, which polars writes as a stream of Arrow."""
    stream = (node.get("Literal", {}).get("Scalar") or {}) if isinstance(node, dict) else {}
    if not isinstance(stream, dict) or "List" not in stream:
        return None
    try:
        column = pa.ipc.open_stream(bytes(stream["List"])).read_all().column(0)
        plain = plain_type(column.type)
        return column.cast(plain) if family(plain) is not Family.OTHER else None
    except (pa.ArrowException, TypeError, ValueError, IndexError):
        return None


_BOOLEAN: dict[str, Callable[[list[Node], Node, pa.Schema], Typed]] = {
    "IsNull": _is_null,
    "IsNotNull": _is_not_null,
    "IsBetween": _is_between,
    "IsIn": _is_in,
}


def _value(node: Node, schema: pa.Schema) -> Typed | None:
    """A column, a part of its date, or a constant; None for all else."""
    if not isinstance(node, dict):
        return None
    ((kind, body),) = node.items()
    match kind:
        case "Column" if schema.names.count(body) == 1:
            return field_at((body,), schema.field(body).type, schema)
        case "Literal":
            return _literal(body)
        case "Alias":
            return _value(body[0], schema)
        case "Function":
            return _date_part(body, schema)
        case _:
            return None


def _date_part(body: Node, schema: pa.Schema) -> Typed | None:
    function = body["function"]
    part = function.get("TemporalExpr") if isinstance(function, dict) else None
    if not isinstance(part, str) or part not in _PARTS:
        return None
    operand = _value(body["input"][0], schema)
    if not isinstance(operand, Field):
        return None
    if family(operand.type) not in (Family.DATE, Family.TIMESTAMP):
        return None
    return typed.Call(_PARTS[part], (operand,), pa.int64(), _NOWHERE)


def _literal(body: Node) -> Constant | None:
    ((_, value),) = body.items()
    if not isinstance(value, dict):
        return None
    ((kind, content),) = value.items()
    try:
        return _SCALARS[kind](content) if kind in _SCALARS else None
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError):
        return None


def _integer(content: Any) -> Constant:
    return Constant(pa.scalar(content, pa.int64()))


def _float(content: Any) -> Constant:
    # Infinities and NaN have no JSON; polars writes null for them.
    return Constant(pa.scalar(float(content), pa.float64()))


def _datetime(content: Any) -> Constant:
    count, unit, zone = content
    name = zone["inner"] if isinstance(zone, dict) else zone
    return Constant(moment(count, pa.timestamp(_UNITS[unit], name)))


_INTEGERS = ("Int", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_SCALARS: dict[str, Callable[[Any], Constant]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "Float": _float,
    "Float64": _float,
    "Boolean": lambda content: Constant(pa.scalar(bool(content))),
    "String": lambda content: Constant(pa.scalar(content, pa.large_string())),
    "Binary": lambda content: Constant(pa.scalar(bytes(content), pa.large_binary())),
    "Date": lambda content: Constant(moment(content, pa.date32())),
    "Time": lambda content: Constant(moment(content, pa.time64("ns"))),
    "Datetime": _datetime,
}
