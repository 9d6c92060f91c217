"""From SQL text to an expression, with a grammar that holds nothing but scalar expressions.

The tokens are sqlglot's. The grammar is written out here because every node has to know its place
in the text, and because what it does not mention cannot get through: statements, subqueries,
parameters, aggregates, windows, lambdas, and functions that read anything but the row.
"""

from dataclasses import replace
from decimal import Decimal
from enum import IntEnum

from maintenance_assets.planning import expressions as ex
from maintenance_assets.planning.expressions import Expression, Span, pointing_at
from maintenance_assets.planning.sql_operands import Operands
from maintenance_assets.planning.sql_tokens import Kind, Token

MAX_DEPTH = 100
_COMPARISONS = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MEMBERS = ("IN", "BETWEEN", "LIKE", "ILIKE")


class Level(IntEnum):
    """How tightly an operator binds, as in PostgreSQL."""

    NONE = 0
    OR = 1
    AND = 2
    NOT = 3
    IS = 4
    COMPARE = 5
    MEMBER = 6
    CONCAT = 7
    SUM = 8
    PRODUCT = 9
    SIGN = 10
    CAST = 11


_LEVELS = {
    "OR": Level.OR,
    "AND": Level.AND,
    **dict.fromkeys(("IS", "ISNULL", "NOTNULL"), Level.IS),
    **dict.fromkeys(_COMPARISONS, Level.COMPARE),
    **dict.fromkeys(_MEMBERS, Level.MEMBER),
    "||": Level.CONCAT,
    **dict.fromkeys(("+", "-"), Level.SUM),
    **dict.fromkeys(("*", "/", "%"), Level.PRODUCT),
    "::": Level.CAST,
}


def parse_sql(text: str) -> Expression:
    """Parse one scalar expression; ValueError that points at what is not one."""
    parser = _Parser(text)
    tree = parser.whole()
    _check_depth(text, tree)
    return tree


def _check_depth(text: str, tree: Expression) -> None:
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(text, node.span)
        waiting.extend((child, depth + 1) for child in ex.children(node))


def _too_deep(text: str, span: Span) -> ValueError:
    return pointing_at(text, span, f"Nested more than {MAX_DEPTH} levels deep")


class _Parser(Operands):
    """Precedence climbing: an operator takes what binds tighter than itself."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def whole(self) -> Expression:
        """The expression that the whole text is."""
        if self.at_end():
            raise ValueError("The SQL expression is empty")
        found = self.expression()
        if not self.at_end():
            raise self.error(self.next.span, self._why_not_the_end())
        return found

    def _why_not_the_end(self) -> str:
        if self.sees(";"):
            return "Only one expression is allowed, and no semicolon"
        return f"Expected the end of the expression, found {self.found}"

    def expression(self) -> Expression:
        """An expression of any operators."""
        return self._expression(Level.NONE)

    def _expression(self, least: Level) -> Expression:
        """An expression of operators that bind tighter than `least`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(self.text, self.next.span)
        found = self._prefix(least)
        while (level := self._level()) > least:
            found = self._infix(level, found)
        self._depth -= 1
        return found

    def _level(self) -> Level:
        if self.sees("NOT"):
            after = self.ahead()
            return Level.MEMBER if after.value in _MEMBERS else Level.NONE
        token = self.next
        infix = token.kind in (Kind.WORD, Kind.SYMBOL)
        return _LEVELS.get(token.value, Level.NONE) if infix else Level.NONE

    def _prefix(self, least: Level) -> Expression:
        if self.sees("NOT"):
            word = self.take()
            if least > Level.NOT:
                raise self.error(word.span, "NOT needs parentheses around it here")
            operand = self._expression(Level.NOT)
            return ex.Not(operand, word.span | operand.span)
        if sign := self.accept("-", "+"):
            return _signed(sign, self._expression(Level.SIGN))
        return self.primary()

    def _infix(self, level: Level, left: Expression) -> Expression:
        match level:
            case Level.OR | Level.AND | Level.CONCAT:
                return self._chain(level, left)
            case Level.IS:
                return self._is_test(left)
            case Level.COMPARE:
                return self._comparison(left)
            case Level.MEMBER:
                return self._membership(left)
            case Level.CAST:
                self.take()
                type_, span = self.type()
                return ex.Cast(left, type_, left.span | span)
            case _:
                symbol = self.take().value
                right = self._expression(level)
                return ex.Arithmetic(symbol, left, right, left.span | right.span)

    def _chain(self, level: Level, left: Expression) -> Expression:
        operands = [left]
        word = self.next.value
        while self.accept(word):
            operands.append(self._expression(level))
        span = left.span | operands[-1].span
        if level is Level.CONCAT:
            return ex.Function("||", tuple(operands), span)
        return (ex.And if level is Level.AND else ex.Or)(tuple(operands), span)

    def _is_test(self, operand: Expression) -> Expression:
        word = self.take()
        if word.value != "IS":
            span = operand.span | word.span
            return _denied(ex.IsNull(operand, span), word.value == "NOTNULL")
        negated = self.accept("NOT") is not None
        found: Expression
        if self.accept("DISTINCT"):
            self.expect("FROM")
            other = self._expression(Level.IS)
            found = ex.Compare("same", operand, other, operand.span | other.span)
            return _denied(found, not negated)
        constant = self.accept("NULL", "UNKNOWN", "TRUE", "FALSE")
        if constant is None:
            message = "Expected NULL, TRUE, FALSE or DISTINCT FROM after IS"
            raise self.error(self.next.span, f"{message}, found {self.found}")
        span = operand.span | constant.span
        if constant.value in ("TRUE", "FALSE"):
            found = ex.IsTruth(operand, constant.value == "TRUE", span)
        else:
            found = ex.IsNull(operand, span)
        return _denied(found, negated)

    def _comparison(self, left: Expression) -> Expression:
        operator = _COMPARISONS[self.take().value]
        if self.sees("ANY", "ALL", "SOME"):
            raise self.error(self.next.span, "ANY and ALL are not available: use IN")
        right = self._expression(Level.COMPARE)
        if self.sees(*_COMPARISONS):
            raise self.error(self.next.span, "Comparisons do not chain: combine them with AND")
        return ex.Compare(operator, left, right, left.span | right.span)

    def _membership(self, operand: Expression) -> Expression:
        negated = self.accept("NOT") is not None
        word = self.take().value
        if word == "IN":
            found = self._in_list(operand)
        elif word == "BETWEEN":
            found = self._between(operand)
        else:
            found = self._like(operand, word == "ILIKE")
        return _denied(found, negated)

    def _in_list(self, operand: Expression) -> Expression:
        self.expect("(")
        if self.sees(")"):
            raise self.error(self.next.span, "IN needs at least one value")
        items = self.values()
        return ex.InList(operand, tuple(items), operand.span | self.expect(")").span)

    def _between(self, operand: Expression) -> Expression:
        low = self._expression(Level.MEMBER)
        self.expect("AND")
        high = self._expression(Level.MEMBER)
        span = operand.span | high.span
        bounds = (
            ex.Compare(">=", operand, low, operand.span | low.span),
            ex.Compare("<=", operand, high, span),
        )
        return ex.And(bounds, span)

    def _like(self, operand: Expression, ignore_case: bool) -> Expression:
        pattern = self._pattern("a pattern in quotes")
        span, escape = operand.span | pattern.span, None
        if self.accept("ESCAPE"):
            token = self._pattern("one character in quotes")
            if len(token.value) > 1:
                raise self.error(token.span, "ESCAPE takes one character")
            span, escape = span | token.span, token.value or None
        self._check_escapes(pattern, escape)
        return ex.Like(operand, pattern.value, escape, ignore_case, span)

    def _pattern(self, what: str) -> Token:
        if self.next.kind is not Kind.STRING:
            raise self.error(self.next.span, f"Expected {what}, found {self.found}")
        return self.take()

    def _check_escapes(self, pattern: Token, escape: str | None) -> None:
        waiting = False
        for char in pattern.value:
            if waiting and char not in ("%", "_", escape):
                raise self.error(pattern.span, f"{escape!r} may only stand before %, _ and itself")
            waiting = char == escape and not waiting
        if waiting:
            raise self.error(pattern.span, f"The pattern ends with {escape!r}, which escapes")


def _denied(found: Expression, negated: bool) -> Expression:
    return ex.Not(found, found.span) if negated else found


def _signed(sign: Token, operand: Expression) -> Expression:
    span = sign.span | operand.span
    if sign.value == "+":
        return replace(operand, span=span)
    match operand:
        case ex.Literal(value=bool()):
            return ex.Negate(operand, span)
        case ex.Literal(value=int() as number):
            return replace(operand, value=-number, span=span)
        case ex.Literal(value=Decimal() as fraction):
            # A minus sign would round to the digits of the context.
            return replace(operand, value=fraction.copy_negate(), span=span)
        case _:
            return ex.Negate(operand, span)
