"""What operators stand between in SQL: literals, columns, CASE, casts and calls."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from maintenance_assets.planning import expressions as ex
from maintenance_assets.planning.expressions import Expression, Span
from maintenance_assets.planning.sql_cursor import Cursor
from maintenance_assets.planning.sql_functions import DATE_PARTS, canonical_name, check_arguments
from maintenance_assets.planning.sql_literals import interval, number
from maintenance_assets.planning.sql_tokens import Kind, Token
from maintenance_assets.planning.sql_types import SEVERAL_WORDS, type_of_name

STATEMENTS = ("CREATE", "DELETE", "DROP", "INSERT", "SELECT", "UPDATE", "VALUES", "WITH")
_RESERVED = frozenset(
    {"ALL", "AND", "ANY", "AS", "BETWEEN", "CASE", "CAST", "DISTINCT", "ELSE", "END", "ESCAPE"}
    | {"EXCEPT", "EXISTS", "FALSE", "FROM", "GROUP", "HAVING", "ILIKE", "IN", "INTERSECT", "INTO"}
    | {"IS", "ISNULL", "JOIN", "LIKE", "LIMIT", "NOT", "NOTNULL", "NULL", "ON", "OR", "ORDER"}
    | {"OVER", "QUALIFY", "SIMILAR", "SOME", "THEN", "TRUE", "UNION", "WHEN", "WHERE", *STATEMENTS}
)
_TYPED_LITERALS = frozenset({"DATE", "TIME", "TIMESTAMP", "DATETIME", "TIMESTAMPTZ"})
_SIDES = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}


class Operands(Cursor, ABC):
    """Reads what stands alone; whatever is inside parentheses is an expression again."""

    @abstractmethod
    def expression(self) -> Expression:
        """An expression of operators and operands."""

    def primary(self) -> Expression:
        token = self.next
        match token.kind:
            case Kind.NUMBER:
                return self._number(self.take(), "")
            case Kind.STRING:
                return ex.Literal(self.take().value, token.span)
            case Kind.BLOB:
                return ex.Literal(bytes.fromhex(self.take().value), token.span)
            case Kind.QUOTED:
                return self._column()
            case Kind.WORD:
                return self._word()
            case Kind.SYMBOL if token.value == "(":
                return self._parenthesis()
            case Kind.SYMBOL if token.value == "." and self.ahead().kind is Kind.NUMBER:
                self.take()
                return self._number(self.take(), "0.")
            case _:
                raise self.error(token.span, self._why_no_value())

    def _why_no_value(self) -> str:
        if self.sees("?", "$", ":", "@"):
            return "Parameters are not available: write the value itself"
        if self.sees("*"):
            return "A star is not a value: name a column"
        return f"Expected a value, found {self.found}"

    def _number(self, token: Token, before: str) -> Expression:
        span = Span(token.span.start - len(before[1:]), token.span.end)
        return number(self.text, before + token.value, span)

    def _parenthesis(self) -> Expression:
        opening = self.take()
        if self.sees(*STATEMENTS):
            raise self.error(self.next.span, "Subqueries are not available")
        inner = self.expression()
        if self.sees(","):
            raise self.error(self.next.span, "A list of values only stands after IN")
        return replace(inner, span=opening.span | self.expect(")").span)

    def _word(self) -> Expression:
        token = self.next
        after = self.ahead()
        if token.value in ("TRUE", "FALSE"):
            return ex.Literal(self.take().value == "TRUE", token.span)
        if token.value == "NULL":
            return ex.Literal(None, self.take().span)
        if token.value == "CASE":
            return self._case()
        if token.value in STATEMENTS:
            raise self.error(token.span, f"Statements are not available. {_quoting(token)}")
        if after.kind is Kind.STRING and token.value in _TYPED_LITERALS:
            self.take()
            inner = ex.Literal(self.take().value, after.span)
            return ex.Cast(inner, type_of_name(token.value, ()), token.span | after.span)
        if token.value == "INTERVAL" and after.kind in (Kind.STRING, Kind.NUMBER):
            return self._interval()
        if after.kind is Kind.SYMBOL and after.value == "(":
            return self._call()
        return self._column()

    def _interval(self) -> Expression:
        start = self.take()
        amount = self.take()
        unit = self.take() if self.next.kind is Kind.WORD and self._unit_follows(amount) else None
        span = start.span | (unit or amount).span
        return interval(self.text, amount.value, unit.value if unit else None, span)

    def _unit_follows(self, amount: Token) -> bool:
        return amount.kind is Kind.NUMBER or not any(char.isalpha() for char in amount.value)

    def _column(self) -> Expression:
        token = self._identifier()
        path, span = [_name(token)], token.span
        while self.sees(".") and self.ahead().kind is not Kind.NUMBER:
            self.take()
            if self.sees("*"):
                raise self.error(self.next.span, "A star is not a value: name a field")
            token = self._identifier()
            path.append(_name(token))
            span = span | token.span
        if self.sees("("):
            raise self.error(span | self.next.span, "A function has no dots in its name")
        if self.sees("["):
            raise self.error(self.next.span, "Elements of lists and maps cannot be read here")
        return ex.Column(tuple(path), span)

    def _identifier(self) -> Token:
        token = self.next
        if token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.value not in _RESERVED):
            return self.take()
        if token.kind is Kind.WORD:
            message = f"Expected a value, found {token.text!r}. {_quoting(token)}"
            raise self.error(token.span, message)
        raise self.error(token.span, f"Expected a name, found {self.found}")

    def _case(self) -> Expression:
        start = self.take()
        operand = None if self.sees("WHEN") else self.expression()
        branches = []
        while self.accept("WHEN"):
            condition = self.expression()
            if operand is not None:
                span = condition.span
                condition = ex.Compare("=", operand, condition, span)
            self.expect("THEN")
            branches.append((condition, self.expression()))
        if not branches:
            raise self.error(self.next.span, f"Expected WHEN, found {self.found}")
        otherwise = self.expression() if self.accept("ELSE") else None
        span = start.span | self.expect("END").span
        return ex.Case(tuple(branches), otherwise or ex.Literal(None, span), span)

    # --- calls ---------------------------------------------------------------------------

    def _call(self) -> Expression:
        name = self.take()
        self.expect("(")
        if name.value in ("CAST", "EXTRACT", "TRIM", "SUBSTRING"):
            found = self._special(name)
        elif name.value == "TRY_CAST":
            message = "TRY_CAST is not available: a value that does not fit is an error"
            raise self.error(name.span, message)
        else:
            found = self._function(name, self._arguments())
        closing = self.expect(")")
        if self.sees("OVER", "FILTER", "WITHIN"):
            raise self.error(self.next.span, "Windows and aggregates are not available")
        return replace(found, span=name.span | closing.span)

    def _special(self, name: Token) -> Expression:
        match name.value:
            case "CAST":
                operand = self.expression()
                self.expect("AS")
                type_, span = self.type()
                return ex.Cast(operand, type_, span)
            case "EXTRACT":
                part = self._date_part()
                self.expect("FROM")
                return self._function(part, [self.expression()])
            case "TRIM":
                return self._trim(name)
            case _:
                return self._substring(name)

    def _date_part(self) -> Token:
        token = self.take()
        part = token.value.lower()
        if token.kind not in (Kind.WORD, Kind.STRING) or part not in DATE_PARTS:
            message = f"EXTRACT takes one of {', '.join(DATE_PARTS)}"
            raise self.error(token.span, message)
        return replace(token, value=part)

    def _trim(self, name: Token) -> Expression:
        side = self.accept(*_SIDES)
        function = replace(name, value=_SIDES[side.value]) if side else name
        if self.accept("FROM"):
            return self._function(function, [self.expression()])
        arguments = self._arguments()
        if len(arguments) == 1 and self.accept("FROM"):
            arguments.insert(0, self.expression())
        return self._function(function, arguments)

    def _substring(self, name: Token) -> Expression:
        arguments = self._arguments()
        if len(arguments) == 1:
            for word in ("FROM", "FOR"):
                if self.accept(word):
                    arguments.append(self.expression())
        return self._function(name, arguments)

    def _arguments(self) -> list[Expression]:
        if self.sees("*", "DISTINCT"):
            raise self.error(self.next.span, "Aggregates are not available")
        return [] if self.sees(")") else self.values()

    def values(self) -> list[Expression]:
        """Expressions with commas between them."""
        if self.sees(*STATEMENTS):
            raise self.error(self.next.span, "Subqueries are not available")
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        return items

    def _function(self, name: Token, arguments: list[Expression]) -> Expression:
        try:
            canonical = canonical_name(name.value)
            check_arguments(canonical, len(arguments))
        except ValueError as error:
            raise self.error(name.span, str(error)) from None
        return ex.Function(canonical, tuple(arguments), name.span)

    def type(self) -> tuple[Any, Span]:
        """The type that is named next, and where."""
        words = [self.take()]
        for known in SEVERAL_WORDS:
            following = [self.ahead(i) for i in range(len(known) - 1)]
            if (words[0].value, *(token.value for token in following)) == known:
                words.extend(self.take() for _ in following)
        span = words[0].span | words[-1].span
        arguments: tuple[int, ...] = ()
        if self.accept("("):
            arguments = self._type_arguments()
            span = span | self.expect(")").span
        try:
            return type_of_name(" ".join(word.value for word in words), arguments), span
        except ValueError as error:
            raise self.error(span, str(error)) from None

    def _type_arguments(self) -> tuple[int, ...]:
        found = []
        while True:
            token = self.take()
            if token.kind is not Kind.NUMBER or not token.value.isdecimal():
                raise self.error(token.span, "Expected a whole number")
            found.append(int(token.value))
            if not self.accept(","):
                return tuple(found)


def _quoting(token: Token) -> str:
    return f'If a column is meant, write "{token.text}" in double quotes'


def _name(token: Token) -> str:
    return token.value if token.kind is Kind.QUOTED else token.text
