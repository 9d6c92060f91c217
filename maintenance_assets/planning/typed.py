"""An expression that is bound to a schema: every type is known and every coercion decided.

The same tree is evaluated in Arrow, rendered for DuckDB and used for pruning. The nodes are those
of `expressions`, without what binding has settled; see `binding` for how one becomes the other.
"""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from maintenance_assets.planning.expressions import Span

ArrowType = Any  # pyarrow ships no types


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field below one."""

    path: tuple[str, ...]
    type: ArrowType
    source: ArrowType
    """The type in the schema, of which `type` is the plain form."""
    alone: bool = True
    """No other column goes by the same dotted name, so that its name tells its range."""

    @property
    def name(self) -> str:
        """The names joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that does not depend on the row."""

    scalar: Any
    written: bool = False
    """A number as it was written, which has no width of its own yet."""

    @property
    def type(self) -> ArrowType:
        """The type of the value."""
        return self.scalar.type


class _Boolean:
    __slots__ = ()

    @property
    def type(self) -> ArrowType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Compare(_Boolean):
    """Operands of types that compare exactly; operators as in `expressions.Compare`."""

    operator: str
    left: "Typed"
    right: "Typed"


@dataclass(frozen=True, slots=True)
class Decided(_Boolean):
    """The same outcome for every value of the operand, and NULL where it is NULL."""

    operand: "Typed"
    outcome: bool


@dataclass(frozen=True, slots=True)
class And(_Boolean):
    """All operands hold."""

    operands: tuple["Typed", ...]


@dataclass(frozen=True, slots=True)
class Or(_Boolean):
    """Any operand holds."""

    operands: tuple["Typed", ...]


@dataclass(frozen=True, slots=True)
class Not(_Boolean):
    """The operand does not hold."""

    operand: "Typed"


@dataclass(frozen=True, slots=True)
class IsNull(_Boolean):
    """The operand is NULL."""

    operand: "Typed"


@dataclass(frozen=True, slots=True)
class IsTruth(_Boolean):
    """IS TRUE or IS FALSE."""

    operand: "Typed"
    value: bool


@dataclass(frozen=True, slots=True)
class Member(_Boolean):
    """The operand is one of these values, which have its type."""

    operand: "Typed"
    values: Any
    """A pyarrow array in ascending order, NaN last, without nulls."""
    has_null: bool


@dataclass(frozen=True, slots=True)
class Like(_Boolean):
    """LIKE: text matches a pattern, whose parts are text, `%` as None, and `_` as an int."""

    operand: "Typed"
    parts: tuple[str | int | None, ...]
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class Unknowable(_Boolean):
    """A condition of which nothing is known: only pruning meets it."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+`, `-`, `*`, `/` or `%`."""

    operator: str
    left: "Typed"
    right: "Typed"
    type: ArrowType
    span: Span


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    operand: "Typed"
    type: ArrowType
    span: Span


@dataclass(frozen=True, slots=True)
class Cast:
    """A strict cast."""

    operand: "Typed"
    type: ArrowType
    span: Span
    exact: bool = False
    """Nobody asked for it, so integers only become floats that are equal to them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function; arguments that have to be constants are in `options`."""

    name: str
    arguments: tuple["Typed", ...]
    type: ArrowType
    span: Span
    options: tuple[Any, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition holds; all values have the same type."""

    branches: tuple[tuple["Typed", "Typed"], ...]
    otherwise: "Typed"

    @property
    def type(self) -> ArrowType:
        """The type of all values."""
        return self.otherwise.type


Typed = (
    Field
    | Constant
    | Compare
    | Decided
    | And
    | Or
    | Not
    | IsNull
    | IsTruth
    | Member
    | Like
    | Unknowable
    | Arithmetic
    | Negate
    | Cast
    | Call
    | Case
)


def children(node: Typed) -> tuple[Typed, ...]:
    """The nodes directly below a node."""
    match node:
        case Field() | Constant() | Unknowable():
            return ()
        case Compare() | Arithmetic():
            return node.left, node.right
        case And() | Or():
            return node.operands
        case Call():
            return node.arguments
        case Case():
            return (*(part for branch in node.branches for part in branch), node.otherwise)
        case _:
            return (node.operand,)


def fields(node: Typed) -> tuple[Field, ...]:
    """The fields that an expression reads."""
    found: dict[Field, None] = {}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Field):
            found[one] = None
        waiting.extend(reversed(children(one)))
    return tuple(found)


def can_fail(node: Typed) -> bool:
    """Whether some values make the evaluation an error."""
    if isinstance(node, Arithmetic | Negate | Cast | Call):
        return True
    return any(can_fail(child) for child in children(node))


def is_constant(node: Typed) -> bool:
    """Whether a node is a constant."""
    return isinstance(node, Constant)
