"""Rows and conditions to try expressions with: values that repeat, and values at the edges."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("w", pa.decimal128(38, 4)),
        ("s", pa.string()),
        ("c", pa.dictionary(pa.int32(), pa.string())),
        ("b", pa.binary()),
        ("y", pa.date32()),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("m", pa.time64("us")),
        ("k", pa.bool_()),
        ("l", pa.bool_()),
    ]
)
EPOCH = datetime(1970, 1, 1)
INTEGERS = [-(2**63), -(2**53) - 1, -128, -1, 0, 1, 2, 5, 127, 2**53, 2**53 + 1, 2**63 - 1]
FLOATS = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.5, 1.0, -1.0, 2.0**53, 1e300]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "a%",
    "_",
    "x\ny",
    "é",
    "e\u0301",
    "😀",
    "😀b",
    "'",
    "a!b",
    "zz",
]
TIMES = [
    EPOCH,
    EPOCH - timedelta(microseconds=1),
    datetime(2024, 2, 29, 23, 59, 59, 999999),
    datetime(2025, 1, 1),
    datetime(2025, 11, 26, 10, 30),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59),
]
DECIMALS = [Decimal(text) for text in ("0", "0.10", "-0.10", "1.00", "1.25", "99999999.99")]
VALUES: dict[str, list[Any]] = {
    "i8": [-128, -1, 0, 1, 2, 5, 127],
    "i": INTEGERS,
    "u": [0, 1, 2, 5, 2**53 + 1, 2**63, 2**64 - 1],
    "f": FLOATS,
    "g": [float("nan"), float("inf"), -0.0, 0.0, 0.5, 1.0, -1.0, 0.10000000149011612],
    "d": DECIMALS,
    "w": [*DECIMALS, Decimal("0.1001"), Decimal(10) ** 33],
    "s": TEXTS,
    "c": TEXTS[:8],
    "b": [b"", b"a", b"ab", b"\x00", b"\xff", b"\xffa"],
    "y": sorted({one.date() for one in TIMES}),
    "t": TIMES,
    "z": [one.replace(tzinfo=UTC) for one in TIMES[:5]],
    "m": [time(0), time(10, 30), time(23, 59, 59, 999999)],
    "k": [True, False],
    "l": [True, False],
}


def rows(count: int, seed: int = 0, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Some rows of the schema, always the same ones."""
    random = Random(seed)
    columns = [random.choices([None, *VALUES[name]], k=count) for name in schema.names]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def literal(value: Any) -> str:
    """A value as SQL writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int() | Decimal():
            return format(value, "f") if isinstance(value, Decimal) else str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.tzinfo is not None:
            return f"CAST('{value.isoformat(' ')}' AS TIMESTAMP WITH TIME ZONE)"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return f"TIME '{value.isoformat()}'"


COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
FAMILIES = [["i8", "i", "u"], ["f"], ["g"], ["d"], ["w"], ["s", "c"], ["b"], ["y"], ["t"], ["z"]]
FAMILIES += [["m"], ["k", "l"], ["y", "t"]]
SAID_TO_DUCKDB = [names for names in FAMILIES if names[0] not in "fgm" and names != ["y", "t"]]
PATTERNS = ["%", "_", "a%", "%b", "%a%", "a_c", "_%", "%!%%", "a!!b", "", "é_", "__", "x%y", "'%"]


@st.composite
def comparisons(draw: st.DrawFn, families: Sequence[Sequence[str]] = FAMILIES) -> str:
    """A column with a value, or with another column, of its own family."""
    names = draw(st.sampled_from(families))
    name, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    values = st.sampled_from(VALUES[draw(st.sampled_from(names))]).map(literal)
    match draw(st.integers(0, 5)):
        case 0:
            return f"{name} {draw(st.sampled_from(COMPARISONS))} {other}"
        case 1:
            items = draw(st.lists(values | st.just("NULL"), min_size=1, max_size=4))
            return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(items)})"
        case 2:
            word = draw(st.sampled_from(["BETWEEN", "NOT BETWEEN"]))
            return f"{name} {word} {draw(values)} AND {draw(values)}"
        case 3:
            return f"{draw(values)} {draw(st.sampled_from(COMPARISONS))} {name}"
        case _:
            return f"{name} {draw(st.sampled_from(COMPARISONS))} {draw(values)}"


@st.composite
def checks(draw: st.DrawFn) -> str:
    """IS NULL, LIKE and booleans."""
    name = draw(st.sampled_from(SCHEMA.names))
    match draw(st.integers(0, 3)):
        case 0:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            text = draw(st.sampled_from(["s", "c"]))
            word = draw(st.sampled_from(["LIKE", "NOT LIKE"]))
            return f"{text} {word} {literal(draw(st.sampled_from(PATTERNS)))} ESCAPE '!'"
        case 2:
            return (
                f"{draw(st.sampled_from(['k', 'l']))} IS {draw(st.sampled_from(['TRUE', 'FALSE']))}"
            )
        case _:
            return draw(st.sampled_from(["k", "l", "TRUE", "FALSE", "k = (i8 > 1)"]))


CALCULATIONS = [
    "year(t) {op} 2025",
    "month(y) {op} 2",
    "day(t) {op} 29",
    "hour(t) {op} 10",
    "minute(t) {op} 30",
    "second(t) {op} 59",
    "quarter(y) {op} 4",
    "isodow(y) {op} 3",
    "week(t) {op} 48",
    "extract(doy FROM t) {op} 60",
    "hour(m) {op} 10",
    "extract(year FROM y) {op} 1970",
    "date_trunc('hour', t) {op} t",
    "date_trunc('month', t) {op} TIMESTAMP '2025-01-01 00:00:00'",
    "date_trunc('week', t) {op} t",
    "CAST(t AS DATE) {op} y",
    "length(s) {op} 1",
    "s || c {op} 'aa'",
    "concat(s, 'x', c) {op} 'axa'",
    "substring(s, 2) {op} 'b'",
    "substring(s, 1, 1) {op} 'a'",
    "replace(s, 'a', 'é') {op} 'é'",
    "starts_with(s, 'a') {op} TRUE",
    "ends_with(s, 'b') {op} TRUE",
    "contains(s, 'b') {op} TRUE",
    "coalesce(i8, 5) {op} 5",
    "coalesce(s, c) {op} 'a'",
    "nullif(i8, 1) {op} 2",
    "greatest(i8, 1) {op} 2",
    "least(f, g) {op} f",
    "greatest(f, g) {op} f",
    "abs(d) {op} d",
    "round(d, 1) {op} 0.1",
    "round(d) {op} 1",
    "floor(d) {op} 1",
    "ceil(d) {op} 1",
    "CAST(i8 AS BIGINT) + 1 {op} 2",
    "CAST(i8 AS BIGINT) - CAST(i8 AS BIGINT) {op} 0",
    "CAST(i8 AS BIGINT) * 2 {op} u",
    "CAST(i8 AS BIGINT) % 3 {op} 1",
    "-CAST(i8 AS BIGINT) {op} 1",
    "d + 1 {op} 1.1",
    "d * 2 {op} 2.5",
    "d - d {op} 0",
    "CASE WHEN k THEN i8 WHEN l THEN 5 END {op} 5",
    "CASE i8 WHEN 1 THEN 'a' ELSE s END {op} 'a'",
    "y - DATE '2025-01-01' {op} 0",
    "t + INTERVAL '1 day' {op} TIMESTAMP '2025-01-02 00:00:00'",
    "y + 1 {op} DATE '2025-01-02'",
    "CAST(i8 AS VARCHAR) {op} '1'",
    "CAST(i8 AS DECIMAL(10, 2)) {op} d",
    "isnan(f) {op} TRUE",
    "isfinite(g) {op} TRUE",
    "lower(s) {op} 'a'",
    "upper(s) {op} 'AB'",
    "trim(' ' || s || '  ') {op} s",
    "ltrim(s, 'a%') {op} 'b'",
    "rtrim(s, 'bc') {op} 'a'",
    "strftime(t, '%Y-%m-%d %H:%M:%S %j%%') {op} '2025-01-01 00:00:00 001%'",
    "strftime(y, '%d') {op} '29'",
]


def conditions(leaves: Any) -> Any:
    """Leaves under AND, OR and NOT."""
    return st.recursive(
        leaves,
        lambda below: (
            st.tuples(below, st.sampled_from(["AND", "OR"]), below).map(
                lambda parts: f"({' '.join(parts)})"
            )
            | below.map(lambda one: f"NOT ({one})")
            | below.map(lambda one: f"({one}) IS TRUE")
        ),
        max_leaves=6,
    )
