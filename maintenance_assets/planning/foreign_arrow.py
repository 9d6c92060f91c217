"""pyarrow expressions: evaluated by Arrow, whose kernels see each row by itself.

What Arrow does is what counts: NaN equals nothing and is neither less nor greater, is_in gives
false for NULL. For pruning an expression is read in the form in which Arrow itself stores it.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning import typed
from maintenance_assets.planning.binding import compare_typed, field_at, member_of
from maintenance_assets.planning.evaluation_compare import mirrored
from maintenance_assets.planning.expressions import Span
from maintenance_assets.planning.families import Family, family, plain_type
from maintenance_assets.planning.typed import Constant, Field, Typed

Array = Any
UNKNOWN = typed.Unknowable()
_DEPTH = 100
_EXACT_INTEGERS = 2**52
_NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class ArrowExpression:
    """A pyarrow.compute.Expression."""

    expr: Any

    @property
    def library(self) -> str:
        """The name of the library."""
        return "pyarrow"

    def names(self) -> tuple[str, ...]:
        """The top-level columns that it reads."""
        found: dict[str, None] = {}
        waiting = [_stored(self.expr)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, _Reference):
                found[node.path[0]] = None
            elif isinstance(node, _Call):
                waiting.extend(reversed(node.arguments))
        return tuple(found)

    def check_types(self, schema: pa.Schema) -> None:
        """Arrow holds all types."""

    def evaluate(self, table: pa.Table) -> Array:
        """Its value for each row."""
        from pyarrow import acero

        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(_decoded(table))),
                acero.Declaration("project", acero.ProjectNodeOptions([self.expr], ["value"])),
            ]
        )
        try:
            # One thread keeps the rows in their order.
            found = plan.to_table(use_threads=False).column(0)
        except (pa.ArrowException, TypeError) as error:
            message = str(error).splitlines()[0]
            # Over no rows only types can be wrong: that is the schema, not the data.
            kind = RewriteError if table.num_rows else ValueError
            raise kind(f"The pyarrow expression cannot be evaluated: {message}") from error
        return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)

    def condition(self, schema: pa.Schema) -> Typed:
        """What is known of it as a condition."""
        return _condition(_stored(self.expr), schema, 0)


def from_arrow(expr: Any) -> ArrowExpression:
    """A pyarrow Expression after a look inside; ValueError when it cannot be used."""
    for node in _walk(_stored(expr)):
        if isinstance(node, _Call):
            _check_function(node.name)
    return ArrowExpression(expr)


def _check_function(name: str) -> None:
    if name == "random":
        raise ValueError("The pyarrow expression uses random, which changes from call to call")
    if name != "cast" and pc.get_function(name).kind != "scalar":
        raise ValueError(
            f"The pyarrow expression uses {name}, which does not work row by row. Here every row "
            "is looked at by itself, so that the result does not depend on how files are read"
        )


def _decoded(table: pa.Table) -> pa.Table:
    """Without dictionaries at the top, which few kernels take."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(index).cast(field.type.value_type)
            table = table.set_column(index, field.name, plain)
    return table


# --- the stored form ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reference:
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    scalar: Any


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: tuple["_Node", ...]
    options: Any


_Node = _Reference | _Stored | _Call


def _walk(node: _Node) -> Iterator[_Node]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, _Call):
            waiting.extend(one.arguments)


def _stored(expr: Any) -> _Node:
    """Read the form in which an expression travels: a batch whose metadata is the tree."""
    try:
        _, (buffer,) = expr.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise ValueError(
            f"The pyarrow expression {expr} cannot be sent to workers: {error}. "
            "Name columns rather than number them"
        ) from error
    batch = _open(buffer)
    return _Reader(_metadata(batch.schema), batch).read()


def _open(buffer: Any) -> pa.RecordBatch:
    if buffer.slice(0, 6).to_pybytes() == b"ARROW1":
        return pa.ipc.open_file(buffer).get_batch(0)
    return pa.ipc.open_stream(buffer).read_next_batch()


class _ArrowSchema(ctypes.Structure):
    """The head of the C data interface's schema."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """All metadata pairs in order; pyarrow itself shows only one of each key."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    exported = _ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema") or 0)
    address = exported.metadata or 0
    texts = []
    (count,) = struct.unpack("=i", ctypes.string_at(address, 4))
    address += 4
    for _ in range(2 * count):
        (length,) = struct.unpack("=i", ctypes.string_at(address, 4))
        texts.append(ctypes.string_at(address + 4, length).decode())
        address += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


class _Reader:
    def __init__(self, pairs: list[tuple[str, str]], batch: pa.RecordBatch) -> None:
        self._pairs = iter(pairs)
        self._batch = batch

    def read(self) -> _Node:
        """The whole tree; without recursion, so that no depth is too much."""
        calls: list[tuple[str, list[_Node], list[Any]]] = []
        for key, value in self._pairs:
            node: _Node
            match key:
                case "call":
                    calls.append((value, [], []))
                    continue
                case "options":
                    calls[-1][2].append(self._batch.column(int(value))[0])
                    continue
                case "field_ref":
                    node = _Reference((value,))
                case "nested_field_ref":
                    node = _Reference(tuple(next(self._pairs)[1] for _ in range(int(value))))
                case "literal":
                    node = _Stored(self._batch.column(int(value))[0])
                case _:
                    name, arguments, options = calls.pop()
                    node = _Call(name, tuple(arguments), options[0] if options else None)
            if not calls:
                return node
            calls[-1][1].append(node)
        raise ValueError("The pyarrow expression cannot be read")


# --- what it says about ranges -------------------------------------------------------------

_OPERATORS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_PARTS = frozenset({"year", "month", "day", "hour", "quarter"})


def _condition(node: _Node, schema: pa.Schema, depth: int) -> Typed:
    if depth > _DEPTH:
        return UNKNOWN
    if not isinstance(node, _Call):
        found = _value(node, schema)
        return found if found is not None and pa.types.is_boolean(found.type) else UNKNOWN
    if node.name in ("and_kleene", "or_kleene"):
        operands = [_condition(part, schema, depth + 1) for part in _chain(node)]
        return (typed.And if node.name == "and_kleene" else typed.Or)(tuple(operands))
    if node.name == "invert":
        return typed.Not(_condition(node.arguments[0], schema, depth + 1))
    if node.name in _OPERATORS:
        return _comparison(node, schema)
    rule = _RULES.get(node.name)
    operand = _value(node.arguments[0], schema) if rule is not None else None
    if rule is None or not isinstance(operand, Field):
        return UNKNOWN
    return rule(operand, node.options)


def _chain(node: _Call) -> list[_Node]:
    found: list[_Node] = []
    waiting: list[_Node] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _Call) and one.name == node.name:
            waiting.extend(reversed(one.arguments))
        else:
            found.append(one)
    return found


def _comparison(node: _Call, schema: pa.Schema) -> Typed:
    left, right = (_value(part, schema) for part in node.arguments)
    operator = _OPERATORS[node.name]
    if left is None or right is None:
        return UNKNOWN
    if isinstance(left, Constant):
        left, right, operator = right, left, mirrored(operator)
    if isinstance(left, Constant) or not isinstance(right, Constant):
        return UNKNOWN
    return _compare(operator, left, right)


def _compare(operator: str, operand: Typed, other: Constant) -> Typed:
    if not other.scalar.is_valid or not _is_exact(operand, other):
        return UNKNOWN
    found = compare_typed(operator, operand, other)
    if family(operand.type) is Family.FLOAT and operator in (">", ">="):
        # To Arrow NaN is not greater than anything.
        return typed.And((found, typed.Not(_is_nan(operand))))
    return found


def _is_nan(operand: Typed) -> Typed:
    return typed.Call("isnan", (operand,), pa.bool_(), _NOWHERE)


def _is_exact(operand: Typed, other: Constant) -> bool:
    """Whether Arrow compares these without rounding either."""
    own, theirs = family(operand.type), family(other.type)
    value = other.scalar.as_py()
    match (own, theirs):
        case (Family.INTEGER, Family.FLOAT) | (Family.FLOAT, Family.INTEGER):
            single = pa.types.is_float32(operand.type)
            return not single and abs(value) < _EXACT_INTEGERS
        case (Family.FLOAT, Family.FLOAT):
            return pa.types.is_float64(operand.type) and value == value
        case (Family.OTHER, _):
            return False
        case _:
            return own is theirs


def _value(node: _Node, schema: pa.Schema) -> Typed | None:
    """A column, a part of its date, or a constant; None for all else."""
    if isinstance(node, _Stored):
        return _constant(node.scalar)
    if isinstance(node, _Reference):
        return _field(node.path, schema)
    if node.name not in _PARTS or len(node.arguments) != 1:
        return None
    operand = _value(node.arguments[0], schema)
    if not isinstance(operand, Field):
        return None
    if family(operand.type) not in (Family.DATE, Family.TIMESTAMP):
        return None
    return typed.Call(node.name, (operand,), pa.int64(), _NOWHERE)


def _constant(scalar: Any) -> Constant | None:
    plain = plain_type(scalar.type)
    if family(plain) is Family.OTHER or isinstance(scalar.type, pa.BaseExtensionType):
        return None
    if pa.types.is_dictionary(scalar.type):
        return None
    return Constant(scalar.cast(plain))


def _field(path: tuple[str, ...], schema: pa.Schema) -> Field | None:
    if schema.names.count(path[0]) != 1:
        return None
    type_ = schema.field(path[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(type_) or type_.get_field_index(name) < 0:
            return None
        type_ = type_.field(name).type
    return field_at(path, type_, schema)


def _option(options: Any, name: str) -> Any:
    """One of the options of a call, which Arrow stores as a struct."""
    return options[name] if options is not None else pa.scalar(None)


def _is_null(operand: Field, options: Any) -> Typed:
    return UNKNOWN if _option(options, "nan_is_null").as_py() else typed.IsNull(operand)


def _is_valid(operand: Field, _options: Any) -> Typed:
    return typed.Not(typed.IsNull(operand))


def _is_in(operand: Field, options: Any) -> Typed:
    items = _option(options, "value_set").values
    if items is None or items.null_count or family(operand.type) is Family.FLOAT:
        return UNKNOWN
    constants = [one for item in items if (one := _constant(item)) is not None]
    if len(constants) < len(items) or not all(_is_exact(operand, one) for one in constants):
        return UNKNOWN
    # To Arrow NULL is in no list, and that is false rather than unknown.
    return typed.IsTruth(member_of(operand, constants), True)


def _starts_with(operand: Field, options: Any) -> Typed:
    if _option(options, "ignore_case").as_py() or family(operand.type) is not Family.TEXT:
        return UNKNOWN
    prefix = _option(options, "pattern").as_py()
    prefix = prefix.decode() if isinstance(prefix, bytes) else prefix
    return typed.Like(operand, (prefix, None) if prefix else (None,), False)


_RULES: dict[str, Callable[[Field, Any], Typed]] = {
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_in": _is_in,
    "starts_with": _starts_with,
}
