"""SQL text becomes one expression, or an error that points at what is not one."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.planning import expressions as ex
from maintenance_assets.planning.expressions import Span, children
from maintenance_assets.planning.sql_parser import MAX_DEPTH, parse_sql
from maintenance_assets.planning.sql_tokens import MAX_LENGTH

D38 = Decimal("-1.2345678901234567890123456789012345678")


def shape(node: Any) -> Any:
    """An expression without places, as nested tuples."""
    match node:
        case ex.Column():
            return node.name
        case ex.Literal():
            return (node.value,)
        case ex.Compare() | ex.Arithmetic():
            return (node.operator, shape(node.left), shape(node.right))
        case ex.Function():
            return (node.name, *map(shape, node.arguments))
        case ex.Like():
            kind = "ilike" if node.ignore_case else "like"
            return (kind, shape(node.operand), node.pattern, node.escape)
        case ex.IsTruth():
            return ("is", shape(node.operand), node.value)
        case ex.Cast():
            return ("cast", shape(node.operand), str(node.type))
        case _:
            return (type(node).__name__.lower(), *map(shape, children(node)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", ("=", "a", (1,))),
        ("a == 1", ("=", "a", (1,))),
        ("a != 1", ("<>", "a", (1,))),
        ("a IS NOT DISTINCT FROM b", ("same", "a", "b")),
        ("a IS DISTINCT FROM b", ("not", ("same", "a", "b"))),
        ("a AND b OR NOT c AND d", ("or", ("and", "a", "b"), ("and", ("not", "c"), "d"))),
        ("a AND b AND c", ("and", "a", "b", "c")),
        ("a OR (b OR c)", ("or", "a", ("or", "b", "c"))),
        ("NOT a = b", ("not", ("=", "a", "b"))),
        ("a = b IS NULL", ("isnull", ("=", "a", "b"))),
        ("a ISNULL", ("isnull", "a")),
        ("a NOTNULL", ("not", ("isnull", "a"))),
        ("a IS NOT NULL", ("not", ("isnull", "a"))),
        ("a IS TRUE", ("is", "a", True)),
        ("a IS NOT FALSE", ("not", ("is", "a", False))),
        ("a IS UNKNOWN", ("isnull", "a")),
        ("a IN (1, 'x', NULL)", ("inlist", "a", (1,), ("x",), (None,))),
        ("a NOT IN (1)", ("not", ("inlist", "a", (1,)))),
        ("a BETWEEN 1 AND 2 AND b", ("and", ("and", (">=", "a", (1,)), ("<=", "a", (2,))), "b")),
        ("a NOT BETWEEN 1 AND 2", ("not", ("and", (">=", "a", (1,)), ("<=", "a", (2,))))),
        ("a LIKE 'x!%%' ESCAPE '!'", ("like", "a", "x!%%", "!")),
        ("a NOT ILIKE 'x'", ("not", ("ilike", "a", "x", None))),
        ("a + b * c - d", ("-", ("+", "a", ("*", "b", "c")), "d")),
        ("(a + b) * c", ("*", ("+", "a", "b"), "c")),
        ("a / b % c", ("%", ("/", "a", "b"), "c")),
        ("-a + 1", ("+", ("negate", "a"), (1,))),
        ("a - -1", ("-", "a", (-1,))),
        ("- -1", (1,)),
        ("-TRUE", ("negate", (True,))),
        ('offset = 1 AND "left" = right', None),
        ("+a", "a"),
        ("-a::int", ("negate", ("cast", "a", "int32"))),
        ("CAST(a AS DECIMAL(10, 2))", ("cast", "a", "decimal128(10, 2)")),
        ("a::double precision > 1", (">", ("cast", "a", "double"), (1,))),
        ("a::timestamp with time zone", ("cast", "a", "timestamp[us, tz=UTC]")),
        ("DATE '2025-01-01'", ("cast", ("2025-01-01",), "date32[day]")),
        ("date = '2025-01-01'", ("=", "date", ("2025-01-01",))),
        ("timestamp > TIMESTAMP '2025-01-01'", None),
        ("year(date) = year", ("=", ("year", "date"), "year")),
        ("INTERVAL '1 day 30 minutes'", (ex.Nanoseconds(88_200 * 10**9),)),
        ("INTERVAL 90 MINUTE", (ex.Nanoseconds(5400 * 10**9),)),
        ("INTERVAL '-1.5' SECONDS", (ex.Nanoseconds(-1_500_000_000),)),
        ("X'00fF'", (b"\x00\xff",)),
        ("'it''s'", ("it's",)),
        ("'a -- no comment'", ("a -- no comment",)),
        ('"a b"."c.d".e', "a b.c.d.e"),
        ('"select"', "select"),
        ("a || 'x' || b", ("||", "a", ("x",), "b")),
        ("a || b + 1", ("||", "a", ("+", "b", (1,)))),
        ("CASE WHEN a THEN 1 ELSE 2 END", ("case", "a", (1,), (2,))),
        ("CASE a WHEN 1 THEN b END", ("case", ("=", "a", (1,)), "b", (None,))),
        ("EXTRACT(YEAR FROM a)", ("year", "a")),
        ("date_trunc('day', a)", ("date_trunc", ("day",), "a")),
        ("TRIM(BOTH ' ' FROM a)", ("trim", "a", (" ",))),
        ("TRIM(LEADING FROM a)", ("ltrim", "a")),
        ("SUBSTRING(a FROM 2 FOR 3)", ("substring", "a", (2,), (3,))),
        ("ifnull(a, 1)", ("coalesce", "a", (1,))),
        ("TRUE AND FALSE", ("and", (True,), (False,))),
        ("interval = 1", ("=", "interval", (1,))),
        ("groesse_ß = 'é'", ("=", "groesse_ß", ("é",))),
        ("a\n  =\t1", ("=", "a", (1,))),
    ],
)
def test_text_is_read_with_the_precedence_of_sql(text: str, expected: Any) -> None:
    if expected is not None:
        assert shape(parse_sql(text)) == expected
    else:
        parse_sql(text)


@pytest.mark.parametrize(
    ("text", "value", "approximate"),
    [
        ("12345678901234567890123", 12345678901234567890123, False),
        ("-9223372036854775808", -(2**63), False),
        ("1_000", 1000, False),
        ("1.50", Decimal("1.50"), False),
        (".5", Decimal("0.5"), False),
        ("5.", Decimal("5"), False),
        ("1e3", Decimal("1e3"), True),
        ("-1.2345678901234567890123456789012345678", D38, False),
        ("0.1234567890123456789012345678", Decimal("0.1234567890123456789012345678"), False),
    ],
)
def test_numbers_keep_all_their_digits(text: str, value: Any, approximate: bool) -> None:
    found = parse_sql(text)
    assert isinstance(found, ex.Literal)
    assert (found.value, type(found.value), found.approximate) == (value, type(value), approximate)


def test_every_part_knows_its_place() -> None:
    text = "coalesce(price, 0) * 2 > 10 AND name IN ('é😀', 'b')"
    places = {text[node.span.start : node.span.end] for node in ex.walk(parse_sql(text))}
    assert places >= {
        text,
        "coalesce(price, 0)",
        "price",
        "coalesce(price, 0) * 2",
        "coalesce(price, 0) * 2 > 10",
        "name IN ('é😀', 'b')",
        "'é😀'",
        "'b'",
    }


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("a = 1; DROP TABLE x", "no semicolon", ";"),
        ("a = 1 b", "Expected the end", "b"),
        ("a = 1 OR", "found the end", " "),
        ("a =", "Expected a value", " "),
        ("(a = 1", r"Expected \)", " "),
        ("a = 1)", "Expected the end", ")"),
        ("a < b < c", "do not chain", "<"),
        ("a = (SELECT 1)", "Subqueries", "SELECT"),
        ("a IN (SELECT 1)", "Subqueries", "SELECT"),
        ("EXISTS (SELECT 1)", "Subqueries", "SELECT"),
        ("SELECT 1", "Statements", "SELECT"),
        ("DELETE FROM x", "Statements", "DELETE"),
        ("a = ?", "Parameters", "?"),
        ("a = $1", "Parameters", "$"),
        ("a = :b", "Parameters", ":"),
        ("a = 1 -- comment", "Comments", "-- comment"),
        ("a /* x */ = 1", "Comments", "/* x */"),
        ("-- a", "Comments", "-- a"),
        ("a = 'x", "never closed", "'"),
        ('"a = 1', "never closed", '"'),
        ("read_parquet('x') = 1", "Unknown function read_parquet", "read_parquet"),
        ("getenv('HOME') = 'x'", "reads nothing but the row", "getenv"),
        ("sum(a) > 1", "cannot aggregate", "sum"),
        ("count(*) > 1", "Aggregates", "*"),
        ("coalesce(DISTINCT a)", "Aggregates", "DISTINCT"),
        ("row_number() = 1", "no window", "row_number"),
        ("abs(a) OVER () = 1", "Windows", "OVER"),
        ("now() > a", "changes from call to call", "now"),
        ("current_date() > a", "changes from call to call", "current_date"),
        ("dayofweek(a) = 1", "isodow", "dayofweek"),
        ("yaer(a) = 1", "Did you mean year", "yaer"),
        ("year(a, b) = 1", "takes 1 argument", "year"),
        ("list_filter(a, x -> x > 1)", "Unknown function|Expected", ""),
        ("main.abs(a) = 1", "no dots", "main.abs("),
        ("a[1] = 1", "Elements of lists", "["),
        ("a.* = 1", "A star", "*"),
        ("* = 1", "A star", "*"),
        ("a IN ()", "at least one value", ")"),
        ("(a, b) = (1, 2)", "after IN", ","),
        ("a = ANY (1)", "use IN", "ANY"),
        ("a = NOT b", "parentheses", "NOT"),
        ("order = 1", "double quotes", "order"),
        ("a LIKE b", "a pattern in quotes", "b"),
        ("a LIKE 'x!' ESCAPE '!'", "ends with", "'x!'"),
        ("a LIKE 'x!y' ESCAPE '!'", "may only stand before", "'x!y'"),
        ("a LIKE 'x' ESCAPE 'ab'", "one character", "'ab'"),
        ("CAST(a AS THING)", "Unknown type THING", "THING"),
        ("CAST(a AS VARCHAR(5))", "not checked", "VARCHAR(5)"),
        ("a::DECIMAL(99, 2)", "precision of 1 to 76", "DECIMAL(99, 2)"),
        ("TRY_CAST(a AS INT)", "TRY_CAST", "TRY_CAST"),
        ("INTERVAL '1 month' = a", "depends on the calendar", "INTERVAL '1 month'"),
        ("INTERVAL '1 bogus' = a", "needs a unit", "INTERVAL '1 bogus'"),
        ("EXTRACT(epoch FROM a)", "EXTRACT takes", "epoch"),
        ("e'x' = a", "Strings are written", "e'x'"),
        ("$$x$$ = a", "Expected a value|Strings", ""),
        ("x'0' = a", "pairs of hexadecimal", "x'0'"),
        ("a @> b", "Expected the end", "@>"),
        ("a -> 'b' = 1", "Expected the end", "->"),
        ("a ^ 2 = 1", "Expected the end", "^"),
        ("a // 2 = 1", "Expected the end", "//"),
        ("a ~ 'x'", "Expected the end", "~"),
        ("`a` = 1", "Expected a value", "`"),
        ("{{ a }} = 1", "Expected a value", "{"),
        ("CASE a END", "Expected WHEN", "END"),
        ('"" = 1', "must not be empty", '""'),
        ("1.5.2 = a", "Expected the end", "."),
        ("0x1F = a", "Expected the end", "x1F"),
        ("a = 1e999999999", "more than", "1e999999999"),
        ("a = " + "9" * 77, "more than 76 digits", "9" * 77),
    ],
)
def test_anything_else_is_an_error_that_points_at_it(text: str, message: str, marked: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_sql(text)
    if marked:
        *_, line, marks = str(caught.value).splitlines()
        start = len(marks) - len(marks.lstrip())
        assert (line + " ")[start : len(marks)] == marked


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_no_expression_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        parse_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "NOT " * 5000 + "a",
        "- " * 5000 + "a",
        "+".join(["a"] * 5000),
        "CASE WHEN " * 3000 + "a",
        "abs(" * 5000 + "a",
        "a" + "::int" * 5000,
        " || ".join(["(a"] * 3000),
    ],
)
def test_absurd_depth_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels"):
        parse_sql(text)


def test_many_conditions_side_by_side_are_not_deep() -> None:
    assert len(children(parse_sql(" OR ".join(f"a = {n}" for n in range(3000))))) == 3000


def test_absurd_length_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_sql("a = '" + "x" * MAX_LENGTH + "'")


PIECES = [*"a1'\"();-*/.,:=<>|xXeE _\\%", " AND ", " NOT ", " IN ", "CASE ", "CAST(", " AS "]
PIECES += ["INTERVAL ", "::int", "IS ", "LIKE 'a'", "NULL", "EXTRACT(", " FROM ", "DATE '"]


@given(st.text(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_any_text_is_an_expression_or_a_value_error(text: str) -> None:
    try:
        found = parse_sql(text)
    except ValueError:
        return
    assert all(0 <= node.span.start < node.span.end <= len(text) for node in ex.walk(found))
    assert isinstance(found.span, Span)


def test_types_are_those_of_arrow() -> None:
    found = parse_sql("CAST(a AS UBIGINT)")
    assert isinstance(found, ex.Cast)
    assert found.type == pa.uint64()
