"""Which rows a predicate matches, and what it refuses before anything is read."""

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.predicates import parse_predicate

NAN, INF = float("nan"), float("inf")


def mask(text: str, batch: pa.RecordBatch) -> list[bool]:
    found = parse_predicate(text).bind(batch.schema).mask(batch)
    assert found.type == pa.bool_()
    assert found.null_count == 0
    assert len(found) == batch.num_rows
    result: list[bool] = found.to_pylist()
    return result


def matching(text: str, values: list[Any], type_: Any = None) -> list[Any]:
    """Those of the values of a column x that match."""
    batch = pa.record_batch({"x": pa.array(values, type_)})
    return [value for value, holds in zip(values, mask(text, batch), strict=True) if holds]


# --- three-valued logic ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", [1]),
        ("x <> 1", [2]),
        ("NOT (x = 1)", [2]),
        ("x = NULL", []),
        ("NOT (x = NULL)", []),
        ("x IS NULL", [None]),
        ("x IS NOT NULL", [1, 2]),
        ("x IS DISTINCT FROM 1", [2, None]),
        ("x IS NOT DISTINCT FROM NULL", [None]),
        ("x IN (1, NULL)", [1]),
        ("x NOT IN (1, NULL)", []),
        ("x NOT IN (1)", [2]),
        ("x = 1 OR NULL", [1]),
        ("x = 1 AND NULL", []),
        ("NOT (x = 1 AND NULL)", [2]),
        ("(x = 1) IS TRUE", [1]),
        ("(x = 1) IS NOT TRUE", [2, None]),
        ("(x = 1) IS FALSE", [2]),
        ("(x = 1) IS UNKNOWN", [None]),
        ("x BETWEEN 1 AND 2", [1, 2]),
        ("x NOT BETWEEN 2 AND NULL", [1]),
        ("coalesce(x, 1) = 1", [1, None]),
        ("CASE WHEN x = 1 THEN TRUE ELSE x IS NULL END", [1, None]),
        ("greatest(x, 2) = 2", [1, 2, None]),
        ("concat('a', CAST(x AS VARCHAR)) = 'a'", [None]),
        ("('a' || CAST(x AS VARCHAR)) IS NULL", [None]),
        ("nullif(x, 1) IS NULL", [1, None]),
        ("x / 0 IS NULL", [1, 2, None]),
        ("x % 0 IS NULL", [1, 2, None]),
        ("x / 2 = 0.5", [1]),
        ("TRUE", [1, 2, None]),
        ("NULL", []),
    ],
)
def test_null_is_neither_true_nor_false(text: str, expected: list[Any]) -> None:
    assert matching(text, [1, 2, None]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 5", [INF, NAN]),
        ("x >= 5", [INF, NAN]),
        ("x < 5", [0.0, -0.0, 1.5]),
        ("NOT (x <= 5)", [INF, NAN]),
        ("x <> 1.5", [0.0, -0.0, INF, NAN]),
        ("x = CAST('NaN' AS DOUBLE)", [NAN]),
        ("x > CAST('inf' AS DOUBLE)", [NAN]),
        ("x IN (0)", [0.0, -0.0]),
        ("x = -0.0", [0.0, -0.0]),
        ("x IN (CAST('NaN' AS DOUBLE), 1.5)", [1.5, NAN]),
        ("x IS NOT DISTINCT FROM x", [0.0, -0.0, 1.5, INF, NAN]),
        ("greatest(x, 2) = x", [INF, NAN]),
        ("least(x, 2) = x", [0.0, -0.0, 1.5]),
        ("isnan(x)", [NAN]),
        ("isfinite(x)", [0.0, -0.0, 1.5]),
        ("x > 1 AND NOT isnan(x)", [1.5, INF]),
    ],
)
@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.float16()])
def test_nan_equals_nan_and_is_the_greatest(text: str, expected: list[float], type_: Any) -> None:
    values = [0.0, -0.0, 1.5, INF, NAN]
    assert str(matching(text, values, type_)) == str(expected)


# --- exactness over types --------------------------------------------------------------------

BIG = 2**53


@pytest.mark.parametrize(
    ("text", "values", "type_", "expected"),
    [
        ("x = 1000", [1, 127], pa.int8(), []),
        ("x < 1000", [1, None], pa.int8(), [1]),
        ("x <> 1000", [1, None], pa.int8(), [1]),
        ("x >= -1", [0, 5], pa.uint8(), [0, 5]),
        ("x IN (300, 1)", [1, 44], pa.uint8(), [1]),
        ("x IS DISTINCT FROM 1000", [1, None], pa.int8(), [1, None]),
        ("x < 1.5", [1, 2], pa.int64(), [1]),
        ("x <= -1.5", [-1, -2], pa.int64(), [-2]),
        ("x = 1.0", [1, 2], pa.int64(), [1]),
        ("x = 9007199254740993", [BIG, BIG + 1], pa.int64(), [BIG + 1]),
        ("x = 9007199254740993", [float(BIG), BIG + 2.0], pa.float64(), []),
        ("x > 9007199254740993", [float(BIG), BIG + 2.0], pa.float64(), [BIG + 2.0]),
        ("x < 9007199254740993", [float(BIG), BIG + 2.0], pa.float64(), [float(BIG)]),
        ("x < 1e400::DOUBLE", [1.0], pa.float64(), ValueError),
        ("x = 16777217", [16777216.0], pa.float32(), []),
        ("x < 1000000000000000000000", [2**63 - 1], pa.int64(), [2**63 - 1]),
        ("x = 18446744073709551615", [2**64 - 1, 0], pa.uint64(), [2**64 - 1]),
        ("x = 0.1", [0.1], pa.float64(), [0.1]),
        ("x = 0.1", [0.1], pa.float32(), [0.1]),
        ("x = 1e-1", [0.1], pa.float32(), [0.1]),
        ("x = CAST(0.1 AS DOUBLE)", [0.1], pa.float32(), []),
        ("x < 1e300", [INF, 5.0], pa.float32(), [5.0]),
        ("x = 1.250", [Decimal("1.25")], pa.decimal128(10, 2), [Decimal("1.25")]),
        ("x = 1.251", [Decimal("1.25")], pa.decimal128(10, 2), []),
        ("x < 1.251", [Decimal("1.25")], pa.decimal128(10, 2), [Decimal("1.25")]),
        ("x > 99999", [Decimal("9.9")], pa.decimal128(2, 1), []),
        ("x < 99999", [Decimal("9.9")], pa.decimal32(2, 1), [Decimal("9.9")]),
        ("x < 1e30", [Decimal("9.9")], pa.decimal256(60, 1), [Decimal("9.9")]),
        ("x < CAST('NaN' AS DOUBLE)", [1], pa.int64(), [1]),
        ("x > CAST('-inf' AS DOUBLE)", [Decimal(1)], pa.decimal128(5, 0), [Decimal(1)]),
    ],
)
def test_constants_are_compared_exactly(text: str, values: Any, type_: Any, expected: Any) -> None:
    if expected is ValueError:
        with pytest.raises(ValueError, match="too large for a float"):
            matching(text, values, type_)
    else:
        assert matching(text, values, type_) == expected


EDGES: dict[str, tuple[Any, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i": (pa.int64(), [-(2**63), -BIG - 1, -1, 0, 1, BIG, BIG + 1, 2**63 - 1]),
    "u": (pa.uint64(), [0, 1, BIG + 1, 2**63, 2**64 - 1]),
    "g": (pa.float32(), [-INF, -1.0, -0.0, 0.5, 1.0, 2.0**53, 2.0**63, INF, NAN]),
    "f": (pa.float64(), [-INF, -(2.0**63), -0.0, 0.1, 1.0, 2.0**53, 2.0**63, 2.0**64, 1e300, NAN]),
    "d": (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.10"), Decimal("0.50"), Decimal(1)]),
    "e": (pa.decimal256(40, 20), [Decimal("0.1"), Decimal("0.10000000000000000555")]),
}
OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def order_of(left: Any, right: Any) -> int:
    """How two numbers stand to each other, NaN being the greatest."""

    def key(value: Any) -> tuple[int, Any]:
        if isinstance(value, float) and value != value:
            return 2, 0
        if value in (INF, -INF):
            return (1, 0) if value > 0 else (-1, 0)
        return 0, Fraction(value)

    return (key(left) > key(right)) - (key(left) < key(right))


@pytest.mark.parametrize("left", EDGES)
@pytest.mark.parametrize("right", EDGES)
def test_numbers_of_all_types_compare_as_the_numbers_they_are(left: str, right: str) -> None:
    pairs = [(one, other) for one in EDGES[left][1] for other in EDGES[right][1]]
    batch = pa.record_batch(
        {
            "a": pa.array([None, None, *(one for one, _ in pairs)], EDGES[left][0]),
            "b": pa.array([None, *EDGES[right][1][:1], *(o for _, o in pairs)], EDGES[right][0]),
        }
    )
    for operator, holds in OPERATORS.items():
        expected = [holds(order_of(one, other)) for one, other in pairs]
        assert mask(f"a {operator} b", batch) == [False, False, *expected], operator
    same = [order_of(one, other) == 0 for one, other in pairs]
    assert mask("a IS NOT DISTINCT FROM b", batch) == [True, False, *same]


@given(st.integers(-(2**63), 2**63 - 1), st.floats(), st.sampled_from(sorted(OPERATORS)))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_integers_and_floats_compare_exactly(integer: int, other: float, operator: str) -> None:
    for number in (other, float(integer)):
        batch = pa.record_batch({"i": pa.array([integer], pa.int64()), "f": pa.array([number])})
        expected = OPERATORS[operator](order_of(integer, number))
        assert mask(f"i {operator} f", batch) == [expected]
        assert mask(f"{integer} {operator} f", batch) == [expected]


# --- time ------------------------------------------------------------------------------------

MOMENT = datetime(2025, 11, 26, 10, 30, 0, 500_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = '2025-11-26 10:30:00.5'", True),
        ("x = '2025-11-26T10:30:00.500000000'", True),
        ("x = TIMESTAMP '2025-11-26 10:30:00.5'", True),
        ("x > '2025-11-26'", True),
        ("x >= DATE '2025-11-27'", False),
        ("x = '2025-11-26 10:30:00.500000001'", False),
        ("x < '2025-11-26 10:30:00.500000001'", True),
        ("x IN ('2025-11-26 10:30:00.5', '2025-11-26')", True),
        ("x BETWEEN '2025-11-26' AND '2025-11-27'", True),
        ("CAST(x AS DATE) = '2025-11-26'", True),
        ("CAST(x AS TIME) = '10:30:00.5'", True),
        ("year(x) = 2025 AND month(x) = 11 AND day(x) = 26", True),
        ("hour(x) = 10 AND minute(x) = 30 AND second(x) = 0", True),
        ("date_trunc('minute', x) = '2025-11-26 10:30'", True),
        ("x + INTERVAL '12 hours' > '2025-11-26 22:30'", True),
        ("x - TIMESTAMP '2025-11-26 10:30:00' = INTERVAL '500 milliseconds'", True),
        ("x > '9999-12-31'", False),
        ("strftime(x, '%Y/%m/%d-%H') = '2025/11/26-10'", True),
    ],
)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_are_compared_in_any_unit(text: str, expected: bool, unit: str) -> None:
    assert bool(matching(text, [MOMENT], pa.timestamp(unit))) is expected


BERLIN = pa.timestamp("us", "Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = '2025-11-26 09:30:00.5Z'", True),
        ("x = '2025-11-26 10:30:00.5+01:00'", True),
        ("x = '2025-11-26 10:30:00.5'", True),
        ("x = '2025-11-26 09:30:00.5'", False),
        ("x = TIMESTAMPTZ '2025-11-26 09:30:00.5'", True),
        ("hour(x) = 10", True),
        ("CAST(x AS DATE) = '2025-11-26'", True),
        ("CAST(x AS TIMESTAMP) = '2025-11-26 10:30:00.5'", True),
        ("date_trunc('day', x) = '2025-11-25 23:00Z'", True),
        ("x = y", True),
    ],
)
def test_instants_are_compared_as_instants(text: str, expected: bool) -> None:
    moment = datetime(2025, 11, 26, 9, 30, 0, 500_000, UTC)
    batch = pa.record_batch(
        {"x": pa.array([moment], BERLIN), "y": pa.array([moment], pa.timestamp("ns", "UTC"))}
    )
    assert mask(text, batch) == [expected]


def test_a_clock_time_that_a_zone_has_twice_needs_its_offset() -> None:
    schema = pa.schema([("x", BERLIN)])
    with pytest.raises(ValueError, match="write the offset") as caught:
        parse_predicate("x > '2025-10-26 02:30'").bind(schema)
    assert "^" in str(caught.value)
    parse_predicate("x > '2025-10-26 02:30+02:00'").bind(schema)


def test_dates_and_timestamps_of_different_units_compare_exactly() -> None:
    batch = pa.record_batch(
        {
            "day": pa.array([date(2025, 1, 1)] * 3 + [date(1969, 12, 31)]),
            "s": pa.array([0, 1, 1, -1], pa.timestamp("s")),
            "ns": pa.array(
                [
                    1_735_689_600_000_000_000,
                    1_735_689_600_000_000_001,
                    1_000_000_000,
                    -1_000_000_001,
                ],
                pa.timestamp("ns"),
            ),
        }
    )
    assert mask("day = ns", batch) == [True, False, False, False]
    assert mask("day < ns", batch) == [False, True, False, True]
    assert mask("s = ns", batch) == [False, False, True, False]
    assert mask("s > ns", batch) == [False, False, False, True]


def test_the_furthest_dates_do_not_overflow() -> None:
    far = pa.array([2**31 - 1, -(2**31), 0], pa.int32()).cast(pa.date32())
    batch = pa.record_batch({"day": far, "ts": pa.array([0, 0, 0], pa.timestamp("us"))})
    assert mask("day > ts", batch) == [True, False, False]
    assert mask("day < '2025-01-01'", batch) == [False, True, True]
    with pytest.raises(RewriteError, match="beyond the year"):
        mask("year(day) = 1970", batch)


# --- text, bytes and nested columns ----------------------------------------------------------


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x LIKE 'a%'", ["a", "ab", "a\nb", "a%"]),
        ("x LIKE 'a_'", ["ab", "a%"]),
        ("x LIKE '%b'", ["ab", "a\nb"]),
        ("x LIKE 'a%b'", ["ab", "a\nb"]),
        ("x LIKE 'a!%' ESCAPE '!'", ["a%"]),
        ("x LIKE 'a\\%'", []),
        ("x LIKE '_'", ["a", "A", "é", "😀"]),
        ("x LIKE ''", [""]),
        ("x LIKE '%'", ["", "a", "ab", "A", "a\nb", "a%", "é", "😀"]),
        ("x ILIKE 'A%'", ["a", "ab", "A", "a\nb", "a%"]),
        ("x ILIKE 'É'", ["é"]),
        ("x NOT LIKE '%a%'", ["", "A", "é", "😀"]),
        ("x = 'a'", ["a"]),
        ("x > 'b'", ["é", "😀"]),
        ("length(x) = 1", ["a", "A", "é", "😀"]),
        ("upper(x) = 'É'", ["é"]),
        ("substring(x, 2) = 'b'", ["ab"]),
        ("replace(x, 'a', '') = 'b'", ["ab"]),
        ("trim(x || '  ') = 'a'", ["a"]),
        ("starts_with(x, 'a') AND contains(x, 'b')", ["ab", "a\nb"]),
    ],
)
@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_texts_are_matched_by_characters(text: str, expected: list[str], type_: Any) -> None:
    values = ["", "a", "ab", "A", "a\nb", "a%", "é", "😀", None]
    assert matching(text, values, type_) == expected


def test_special_characters_of_a_pattern_stand_for_themselves() -> None:
    special = ".^$*+?{}[]\\|()-#&~\0 \t/@<>=!"
    for char in special:
        quoted = char.replace("'", "''")
        assert matching(f"x LIKE '_{quoted}_'", ["a" + char + "b", "axb"]) == ["a" + char + "b"]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
def test_bytes_are_compared_in_order(type_: Any) -> None:
    values = [b"\x00\x01", b"ab", b"\xff\x00", None]
    assert matching("x > X'6100'", values, type_) == [b"ab", b"\xff\x00"]
    assert matching("x IN (X'6162', X'00')", values, type_) == [b"ab"]


def test_uuids_are_compared_with_their_text() -> None:
    values = [UUID(int=5).bytes, UUID(int=6).bytes]
    found = matching("x = '00000000-0000-0000-0000-000000000005'", values, pa.uuid())
    assert found == [UUID(int=5).bytes]
    with pytest.raises(ValueError, match="not a UUID"):
        matching("x = '5'", values, pa.uuid())


def test_times_and_durations() -> None:
    assert matching("x >= '10:00'", [time(9), time(10)], pa.time32("s")) == [time(10)]
    assert matching("x < '10:00:00.0000001'", [time(10)], pa.time64("us")) == [time(10)]
    long = timedelta(hours=2)
    assert matching("x > INTERVAL '1 hour'", [long, timedelta(0)], pa.duration("s")) == [long]


def test_fields_of_structs() -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    values = [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}, None]
    assert matching("x.a = 1", values, struct) == values[:1]
    assert matching("x.b.c IS NULL", values, struct) == values[1:]
    assert matching("x IS NULL", values, struct) == [None]
    assert matching("x.b IS NOT NULL", values, struct) == values[:1]
    assert matching("x IS NULL", [[1], None], pa.list_(pa.int64())) == [None]


def test_a_name_with_a_dot_may_be_a_column() -> None:
    batch = pa.record_batch({"a.b": [1, 2], "a": [{"b": 5}, {"b": 6}]})
    assert mask('"a.b" = 1', batch) == [True, False]
    assert mask("a.b = 6", batch) == [False, True]
    assert mask("a.b = 1", pa.record_batch({"a.b": [1, 2]})) == [True, False]
    assert mask("a.b = 1", pa.record_batch({"a": [5, 6], "a.b": [1, 2]})) == [True, False]


def test_a_column_of_nulls_matches_nothing_but_is_null() -> None:
    assert matching("x = 1", [None, None], pa.null()) == []
    assert matching("x IS NULL", [None, None], pa.null()) == [None, None]
    assert matching("x IN (1) OR x LIKE 'a' OR x", [None], pa.null()) == []


# --- values that are errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1 > 0", "out of range for BIGINT"),
        ("x * 2 > 0", "out of range for BIGINT"),
        ("-(-x - 1) > 0", "out of range for BIGINT"),
        ("abs(-x - 1) > 0", "out of range for BIGINT"),
        ("CAST(x AS TINYINT) = 1", "does not fit int8: 9223372036854775807"),
        ("coalesce(x, 0.5::DOUBLE) = 1", "9223372036854775807 is not exact in double"),
        ("CAST(CAST(x AS VARCHAR) || 'z' AS BIGINT) = 1", "9223372036854775807z"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_not_another_value(
    text: str, message: str
) -> None:
    predicate = parse_predicate(text).bind(pa.schema([("x", pa.int64())]))
    with pytest.raises(RewriteError, match=message) as caught:
        predicate.mask(pa.record_batch({"x": pa.array([2**63 - 1], pa.int64())}))
    assert "^" in str(caught.value)


def test_a_guard_on_the_left_keeps_errors_away() -> None:
    values = ["1", "x", "", None, "3"]
    guarded = "x <> '' AND x <> 'x' AND CAST(x AS BIGINT) > 1"
    assert matching(guarded, values) == ["3"]
    assert matching("x = '' OR x = 'x' OR CAST(x AS BIGINT) > 1", values) == ["x", "", "3"]
    case = "CASE WHEN x IN ('', 'x') THEN FALSE ELSE CAST(x AS BIGINT) = 1 END"
    assert matching(case, values) == ["1"]


def test_constants_that_cannot_be_calculated_are_found_at_once() -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(ValueError, match="does not fit int64: 'abc'") as caught:
        parse_predicate("x = CAST('abc' AS BIGINT)").bind(schema)
    assert str(caught.value).endswith("^" * len("CAST('abc' AS BIGINT)"))


# --- binding ---------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("price", pa.float64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("s", pa.struct([("a", pa.int64())])),
    ]
)


HUGE_PATTERN = f"name LIKE '{'_' * 90_000}%a%b'"


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("prise > 1", "Unknown column 'prise'. Available columns: price, name, at", "prise"),
        ("Price > 1", "Unknown column 'Price'", "Price"),
        ("s.b = 1", "Unknown field 'b' of column 's'. Available fields: a", "s.b"),
        ("name.a = 1", "has no fields", "name.a"),
        ("flag OR price = 'x'", "double and text cannot be compared", "price = 'x'"),
        ("name = 1", "text and int64 cannot be compared", "name = 1"),
        ("flag = 1", "bool and int64 cannot be compared", "flag = 1"),
        ("at = zoned", "one has a time zone", "at = zoned"),
        ("at = '2025-13-01'", "not a date", "at = '2025-13-01'"),
        ("at = '2025-11-26 10:00Z'", "has an offset", "at = '2025-11-26 10:00Z'"),
        ("at = 'yesterday'", "such as '2025-11-26 10:30:00'", "at = 'yesterday'"),
        ("tags = 'x'", "cannot be compared", "tags = 'x'"),
        ("raw = 'x'", "binary and text cannot be compared", "raw = 'x'"),
        ("price", "Expected a condition", "price"),
        ("flag AND price + 1", "Expected a condition", "price + 1"),
        ("NOT name", "Expected a condition", "name"),
        ("1", "Expected a condition", "1"),
        ("price LIKE 'x'", "LIKE is for text", "price"),
        (HUGE_PATTERN, "pattern too large", None),
        ("price + name > 1", "cannot be calculated", "price + name"),
        ("year(price) = 1", "Expected a date", "price"),
        ("lower(price) = 'a'", "Expected text", "price"),
        ("substring(name, price) = 'a'", "Expected a position as a constant", "price"),
        ("round(price, -1) = 1", "not negative", "-1"),
        ("date_trunc('eon', at) = at", "Expected one of", "'eon'"),
        ("strftime(at, '%c') = 'x'", "directives", "'%c'"),
        ("CAST(tags AS BIGINT) = 1", "cannot be cast", "CAST(tags AS BIGINT)"),
        ("CAST(at AS TIMESTAMPTZ) = zoned", "no time zone", "CAST(at AS TIMESTAMPTZ)"),
        ("coalesce(price, name) = 1", "no common type", "coalesce(price, name)"),
        ("price IN (1, 'x')", "cannot be compared", "'x'"),
    ],
)
def test_what_does_not_fit_the_schema_is_pointed_at(text: str, message: str, marked: str) -> None:
    predicate = parse_predicate(text)
    with pytest.raises(ValueError, match=message) as caught:
        predicate.bind(SCHEMA)
    *_, line, marks = str(caught.value).splitlines()
    start = len(marks) - len(marks.lstrip())
    assert marked in (None, line[start : len(marks)])


def test_a_name_that_occurs_twice_is_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(ValueError, match="occurs 2 times"):
        parse_predicate("a = 1").bind(schema)


def test_columns_are_those_it_reads_in_the_order_of_the_schema() -> None:
    bound = parse_predicate("s.a = 1 OR flag OR price > 1 AND flag").bind(SCHEMA)
    assert bound.columns == ("price", "flag", "s")
    assert parse_predicate("TRUE").bind(SCHEMA).columns == ()


def test_batches_may_have_their_columns_in_any_order_and_type() -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("s", pa.struct([("x", pa.int64())]))]
    )
    bound = parse_predicate("a = 1 AND b = 'x' AND s.x IS NULL").bind(schema)
    drifted = pa.record_batch(
        {
            "more": [1],
            "b": pa.array(["x"]).dictionary_encode(),
            "a": pa.array([1], pa.int8()),
            "s": [{"y": 1}],
        }
    )
    assert bound.mask(drifted).to_pylist() == [True]
    assert bound.mask(pa.record_batch({"a": [1], "b": ["x"]})).to_pylist() == [True]
    assert bound.mask(pa.record_batch({"b": ["x"]})).to_pylist() == [False]


def test_no_rows_give_an_empty_mask() -> None:
    assert mask("x > 1 AND year(y) = 2025 AND CASE WHEN x > 1 THEN TRUE END", EMPTY) == []


EMPTY = pa.record_batch({"x": pa.array([], pa.int64()), "y": pa.array([], pa.date32())})


@pytest.mark.parametrize(
    "text", ["x > 1", "x IN (1, 2, NULL) AND y LIKE 'a%'", "CASE WHEN x > 1 THEN y END = 'a'"]
)
def test_predicates_travel(text: str) -> None:
    batch = pa.record_batch({"x": [1, 2], "y": ["a", "b"]})
    predicate = pickle.loads(pickle.dumps(parse_predicate(text)))
    bound = pickle.loads(pickle.dumps(predicate.bind(batch.schema)))
    assert bound.mask(batch).to_pylist() == mask(text, batch)
    assert bound.duckdb_sql() == predicate.bind(batch.schema).duckdb_sql()


@pytest.mark.parametrize("value", [5, None, b"a = 1", {"a": 1}, ["a = 1"]])
def test_other_things_are_no_predicates(value: Any) -> None:
    with pytest.raises(ValueError, match=r"SQL text, a pyarrow\.compute\.Expression or"):
        parse_predicate(value)


def test_a_predicate_shows_what_was_written() -> None:
    assert str(parse_predicate("a  =  1")) == "a  =  1"
