"""One scalar SQL expression as a value: what was written, before any schema is known.

Every node remembers where in the text it stands, so that whatever is found wrong with it later
can be pointed at.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ArrowType = Any  # pyarrow ships no types


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands in the text: from `start` up to, not including, `end`."""

    start: int
    end: int

    def __or__(self, other: "Span") -> "Span":
        return Span(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class Nanoseconds:
    """The value of an INTERVAL literal: a length of time that does not depend on a calendar."""

    count: int


LiteralValue = None | bool | int | Decimal | str | bytes | Nanoseconds


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field below one, as the names from the top down."""

    path: tuple[str, ...]
    span: Span

    @property
    def name(self) -> str:
        """The names joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, exactly as written; numbers keep all their digits."""

    value: LiteralValue
    span: Span
    approximate: bool = False
    """Written with an exponent: a float by the SQL standard, as soon as one calculates with it."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`=`, `<>`, `<`, `<=`, `>`, `>=`, or `same` (IS NOT DISTINCT FROM)."""

    operator: str
    left: "Expression"
    right: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class And:
    """All operands hold."""

    operands: tuple["Expression", ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Or:
    """Any operand holds."""

    operands: tuple["Expression", ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    """The operand does not hold."""

    operand: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class IsNull:
    """The operand is NULL."""

    operand: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class IsTruth:
    """IS TRUE or IS FALSE: never NULL itself."""

    operand: "Expression"
    value: bool
    span: Span


@dataclass(frozen=True, slots=True)
class InList:
    """The operand equals one of the items."""

    operand: "Expression"
    items: tuple["Expression", ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE or ILIKE with a pattern that is a constant."""

    operand: "Expression"
    pattern: str
    escape: str | None
    ignore_case: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+`, `-`, `*`, `/` or `%` of two operands."""

    operator: str
    left: "Expression"
    right: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    operand: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST to an Arrow type; strict: a value that does not fit is an error."""

    operand: "Expression"
    type: ArrowType
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """A call of one of the functions that the parser lets through."""

    name: str
    arguments: tuple["Expression", ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN: the value of the first branch whose condition holds."""

    branches: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression"
    span: Span


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part of a foreign expression that cannot be said here: it may come out in any way."""

    span: Span = Span(0, 0)


Expression = (
    Column
    | Literal
    | Compare
    | And
    | Or
    | Not
    | IsNull
    | IsTruth
    | InList
    | Like
    | Arithmetic
    | Negate
    | Cast
    | Function
    | Case
    | Opaque
)


def children(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly below a node."""
    match node:
        case Column() | Literal() | Opaque():
            return ()
        case Compare() | Arithmetic():
            return node.left, node.right
        case And() | Or():
            return node.operands
        case Not() | IsNull() | IsTruth() | Like() | Negate() | Cast():
            return (node.operand,)
        case InList():
            return node.operand, *node.items
        case Function():
            return node.arguments
        case Case():
            return (*(part for branch in node.branches for part in branch), node.otherwise)


def walk(node: Expression) -> Iterator[Expression]:
    """A node and all below it, from left to right."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(children(found)))


def column_names(node: Expression) -> tuple[str, ...]:
    """The columns that an expression reads, dotted, each once, in the order of the text."""
    return tuple(dict.fromkeys(part.name for part in walk(node) if isinstance(part, Column)))


_SHOWN = 100
"""So much of a long text is shown around the place that is meant."""


def pointing_at(text: str, span: Span, message: str) -> ValueError:
    """An error whose message ends with the line of the text that is meant, and a mark below it."""
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.start)
    line = text[start : end if end >= 0 else len(text)]
    column = span.start - start
    width = max(1, min(span.end, start + len(line)) - span.start)
    if len(line) > _SHOWN:
        cut = max(0, min(column - _SHOWN // 3, len(line) - _SHOWN))
        line, column = line[cut : cut + _SHOWN], column - cut
        width = min(width, _SHOWN - column)
    shown = "".join(char if char.isprintable() else " " for char in line)
    return ValueError(f"{message}\n  {shown}\n  {' ' * column}{'^' * max(1, width)}")


def on_one_line(message: str) -> str:
    """A message without line breaks; one that points at a place quotes the place."""
    said, *rest = message.splitlines() or [""]
    if len(rest) == 2 and set(rest[1].strip()) == {"^"}:
        line, start, end = rest[0].strip(), rest[1].index("^"), len(rest[1].rstrip())
        place = rest[0][start:end]
        if place == line:
            return f"{said} (in: {line})"
        where = f"at '{place}' in" if place else "at the end of"
        return f"{said} ({where}: {line})"
    return re.sub(r"\s*[\r\n]+\s*", " ", message).strip()
