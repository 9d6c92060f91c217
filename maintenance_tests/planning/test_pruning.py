"""A file is left out only if no row of it can match; and in the ordinary cases it is."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.predicates import parse_predicate
from maintenance_tests.planning.expression_strategies import (
    CALCULATIONS,
    SCHEMA,
    checks,
    comparisons,
    conditions,
    rows,
)

NAN = float("nan")


def column_range(name: str, low: Any, high: Any, type_: Any) -> dict[str, ColumnRange]:
    return {name: ColumnRange(name, pa.scalar(low, type_), pa.scalar(high, type_))}


def may_match(
    text: str,
    ranges: Mapping[str, ColumnRange],
    type_: Any,
    constants: Mapping[str, Any] | None = None,
    name: str = "x",
) -> bool:
    schema = pa.schema([(name, type_), ("other", pa.int64())])
    return parse_predicate(text).bind(schema).may_match(ranges, constants)


INTEGERS = [
    ("x = 5", False),
    ("x = 10", True),
    ("x = 20", True),
    ("x = 21", False),
    ("x <> 5", True),
    ("x < 10", False),
    ("x <= 10", True),
    ("x > 20", False),
    ("x >= 20", True),
    ("5 = x", False),
    ("25 < x", False),
    ("x = 9.5", False),
    ("x = 10.5", False),
    ("x > 20.5", False),
    ("x > 19.5", True),
    ("x = 1e1", True),
    ("x IN (1, 2, 3)", False),
    ("x IN (1, 12, 30)", True),
    ("x IN (1, NULL)", False),
    ("x NOT IN (1, 2)", True),
    ("x BETWEEN 1 AND 9", False),
    ("x BETWEEN 1 AND 10", True),
    ("x NOT BETWEEN 1 AND 30", False),
    ("NOT (x > 5)", False),
    ("NOT (x > 15)", True),
    ("NOT (x < 5)", True),
    ("x IS NULL", True),
    ("x IS NOT NULL", True),
    ("NOT (x IS NULL)", True),
    ("x IS NOT DISTINCT FROM 5", False),
    ("x IS DISTINCT FROM 5", True),
    ("x IS NOT DISTINCT FROM NULL", True),
    ("x = 5 OR x = 6", False),
    ("x = 5 OR x = 12", True),
    ("x = 12 AND other = 1", True),
    ("x = 5 AND other = 1", False),
    ("x = 5 OR other = 1", True),
    ("x = NULL", False),
    ("x <> NULL OR x = NULL", False),
    ("(x = 5) IS TRUE", False),
    ("(x = 5) IS FALSE", True),
    ("(x = 5) IS NOT TRUE", True),
    ("(x = 5) IS NULL", True),
    ("x + 10 = 19", False),
    ("x + 10 = 20", True),
    ("x - 5 > 15", False),
    ("-x = -9", False),
    ("x * 2 > 40", False),
    ("x * -1 > 0", False),
    ("x / 2 > 100", True),
    ("x % 2 = 5", True),
    ("CAST(x AS DECIMAL(20, 2)) = 9.99", False),
    ("CASE WHEN other = 1 THEN x ELSE 7 END = 8", True),
    ("CASE WHEN other = 1 THEN x ELSE 11 END = 8", False),
    ("coalesce(x, 15) = 30", False),
    ("coalesce(x, 30) = 30", True),
    ("greatest(x, 30) = 25", True),
    ("greatest(x, 30) = 31", False),
    ("nullif(x, 12) = 12", True),
    ("x = 1000000000000000000000", False),
    ("x < 1000000000000000000000", True),
    ("TRUE", True),
    ("FALSE", False),
    ("NULL", False),
]


@pytest.mark.parametrize(("text", "expected"), INTEGERS)
@pytest.mark.parametrize("stored", [pa.int8(), pa.int64()])
def test_integers_from_10_to_20(text: str, expected: bool, stored: Any) -> None:
    assert may_match(text, column_range("x", 10, 20, stored), pa.int64()) is expected


@pytest.mark.parametrize("text", ["x > 5", "x >= 5", "x = CAST('NaN' AS DOUBLE)", "NOT (x <= 5)"])
def test_a_range_of_floats_never_speaks_of_nan(text: str) -> None:
    assert may_match(text, column_range("x", 1.0, 2.0, pa.float64()), pa.float64())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 1", False),
        ("x <= 1", True),
        ("x = 5", False),
        ("x = 1.5", True),
        ("x <> 1.5", True),
        ("NOT (x >= 0)", False),
        ("NOT (x > 2)", True),
        ("NOT (x = 1.5)", True),
        ("x IN (5, 6)", False),
        ("x BETWEEN 5 AND 6", False),
        ("x BETWEEN 5 AND CAST('NaN' AS DOUBLE)", True),
        ("x + 1 < 2", False),
        ("x + 1 > 3", True),
        ("isnan(x)", True),
        ("x > 5 AND x < 6", False),
        ("x > 5 AND NOT isnan(x)", False),
        ("x > 5 OR x < 1", True),
    ],
)
def test_floats_from_1_to_2(text: str, expected: bool) -> None:
    assert may_match(text, column_range("x", 1.0, 2.0, pa.float32()), pa.float64()) is expected


def test_all_the_same_float_may_still_be_nan() -> None:
    ranges = column_range("x", 1.0, 1.0, pa.float64())
    assert may_match("x <> 1", ranges, pa.float64())
    assert may_match("NOT (x <= 1)", ranges, pa.float64())
    assert not may_match("x <> 1", column_range("x", 1, 1, pa.int64()), pa.int64())


def test_zeros_of_both_signs_are_equal() -> None:
    assert may_match("x = 0", column_range("x", 0.0, 5.0, pa.float64()), pa.float64())
    assert may_match("x = -0.0", column_range("x", 0.0, 5.0, pa.float64()), pa.float64())
    assert may_match("x >= 0", column_range("x", -5.0, -0.0, pa.float64()), pa.float64())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 'a'", False),
        ("x = 'bc'", True),
        ("x = 'BTC'", False),
        ("x > 'd'", False),
        ("x LIKE 'a%'", False),
        ("x LIKE 'c%'", True),
        ("x LIKE 'b%'", True),
        ("x LIKE 'ba%'", True),
        ("x LIKE 'd%'", False),
        ("x LIKE 'a_c'", False),
        ("x LIKE '%a'", True),
        ("x LIKE '_'", True),
        ("x ILIKE 'A%'", True),
        ("x LIKE 'a'", False),
        ("NOT (x LIKE 'b%')", True),
        ("x NOT LIKE '%'", False),
        ("starts_with(x, 'a')", False),
        ("starts_with(x, 'c')", True),
        ("x IN ('a', 'z')", False),
        ("lower(x) = 'a'", True),
        ("length(x) = -1", True),
    ],
)
@pytest.mark.parametrize("type_", [pa.string(), pa.dictionary(pa.int8(), pa.large_string())])
def test_texts_from_b_to_cz(text: str, expected: bool, type_: Any) -> None:
    assert may_match(text, column_range("x", "b", "cz", pa.string()), type_) is expected


def test_a_prefix_that_all_texts_have_decides_its_negation() -> None:
    assert not may_match("x NOT LIKE 'b%'", column_range("x", "b", "bz", pa.string()), pa.string())
    assert may_match("x NOT LIKE 'b%'", column_range("x", "b", "c", pa.string()), pa.string())


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [
        ("a" * 16, "b" * 16, "b" * 16 + "x"),
        ("a", "z" * 64, "z" * 64 + "zz"),
        ("a", "\U0010ffff" * 16, "\U0010ffff" * 17),
        ("a", "\ud7ff" * 16, "\ud7ff" * 16 + "x"),
    ],
)
def test_an_upper_bound_that_was_cut_short_still_covers_longer_texts(
    low: str, high: str, value: str
) -> None:
    ranges = column_range("x", low, high, pa.string())
    assert may_match(f"x = '{value}'", ranges, pa.string())
    assert may_match(f"x > '{high}'", ranges, pa.string())
    assert may_match(f"x <> '{high}'", column_range("x", high, high, pa.string()), pa.string())


def test_an_upper_bound_of_bytes_that_was_cut_short_covers_longer_ones() -> None:
    ranges = column_range("x", b"a", b"\xfe\xff" * 10, pa.binary())
    assert may_match(f"x = X'{'feff' * 10}ff'", ranges, pa.binary())
    assert not may_match("x = X'ff'", ranges, pa.binary())
    assert may_match("x = X'ffff'", column_range("x", b"a", b"\xff" * 20, pa.binary()), pa.binary())


JANUARY = (datetime(2025, 1, 5, 12), datetime(2025, 1, 20, 18))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = '2025-01-10'", True),
        ("x = '2025-02-10'", False),
        ("x < '2025-01-05'", False),
        ("x < '2025-01-05 12:00:00.000001'", True),
        ("x > TIMESTAMP '2025-01-20 18:00:00'", False),
        ("x >= DATE '2025-01-21'", False),
        ("year(x) = 2025", True),
        ("year(x) = 2024", False),
        ("year(x) > 2025", False),
        ("month(x) = 1", True),
        ("month(x) = 2", False),
        ("quarter(x) = 2", False),
        ("day(x) = 4", False),
        ("day(x) = 5", True),
        ("hour(x) = 3", True),
        ("extract(doy FROM x) = 21", False),
        ("isodow(x) = 9", True),
        ("CAST(x AS DATE) = '2025-01-04'", False),
        ("CAST(x AS DATE) = '2025-01-05'", True),
        ("date_trunc('month', x) = '2025-01-01'", True),
        ("date_trunc('day', x) > '2025-01-21'", False),
        ("x + INTERVAL '1 day' < '2025-01-06'", False),
        ("x - INTERVAL '1 day' > '2025-01-19'", True),
    ],
)
@pytest.mark.parametrize("stored", ["ms", "us", "ns"])
def test_timestamps_in_january(text: str, expected: bool, stored: str) -> None:
    ranges = column_range("x", *JANUARY, pa.timestamp(stored))
    assert may_match(text, ranges, pa.timestamp("us")) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day(x) = 31", True),
        ("month(x) = 12", True),
        ("month(x) = 6", True),
        ("year(x) = 2023", False),
    ],
)
def test_parts_of_a_date_over_new_year(text: str, expected: bool) -> None:
    ranges = column_range("x", date(2024, 12, 30), date(2025, 1, 2), pa.date32())
    assert may_match(text, ranges, pa.date32()) is expected


def test_parts_of_an_instant_are_those_of_its_zone() -> None:
    moment = datetime(2024, 12, 31, 23, 30, tzinfo=UTC)
    berlin = pa.timestamp("us", "Europe/Berlin")
    ranges = column_range("x", moment, moment, berlin)
    assert may_match("year(x) = 2025", ranges, berlin)
    assert may_match("CAST(x AS DATE) = '2025-01-01'", ranges, berlin)
    assert not may_match("year(x) = 2026", ranges, berlin)
    assert not may_match("year(x) = 2025", column_range("x", moment, moment, INSTANT), INSTANT)
    assert not may_match("x = '2024-12-31 23:30:00'", ranges, berlin)
    assert may_match("x = '2025-01-01 00:30:00'", ranges, berlin)


INSTANT = pa.timestamp("us", "UTC")


def test_instants_and_clock_times_do_not_prune_each_other() -> None:
    moment = datetime(2024, 12, 31)
    ranges = column_range("x", moment, moment, pa.timestamp("us"))
    assert may_match("x = '2030-01-01 00:00:00Z'", ranges, INSTANT)


@pytest.mark.parametrize(("text", "expected"), [("x = 1.25", True), ("x = 1.251", False)])
def test_decimals_of_another_scale(text: str, expected: bool) -> None:
    ranges = column_range("x", Decimal("1.2"), Decimal("1.3"), pa.decimal128(5, 1))
    assert may_match(text, ranges, pa.decimal128(10, 2)) is expected


def test_a_file_of_another_family_of_types_is_never_left_out() -> None:
    assert may_match("x = 'zz'", column_range("x", b"a", b"b", pa.binary()), pa.string())
    assert may_match("x = 5", column_range("x", "a", "b", pa.string()), pa.int64())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", False),
        ("x <> 1", False),
        ("NOT (x = 1)", False),
        ("x NOT IN (1)", False),
        ("x IS NULL", True),
        ("x IS NOT NULL", False),
        ("x = 1 OR other = 1", True),
        ("x = 1 OR x IS NULL", True),
        ("coalesce(x, 5) = 5", True),
        ("coalesce(x, 5) = 6", False),
        ("x + 1 IS NULL", True),
        ("x + 1 = 2", False),
        ("(x = 1) IS NOT TRUE", True),
        ("x IS DISTINCT FROM 1", True),
        ("x IS NOT DISTINCT FROM 1", False),
        ("nullif(5, x) = 5", True),
        ("greatest(x, 5) = 5", True),
        ("concat('a', x) = 'a'", True),
    ],
)
def test_a_column_that_a_file_lacks_is_all_null(text: str, expected: bool) -> None:
    ranges = {"x": ColumnRange("x", None, None, all_null=True)}
    assert may_match(text, ranges, pa.int64()) is expected


def test_a_footer_that_does_not_tell_excludes_nothing() -> None:
    ranges = {"x": ColumnRange("x", None, None)}
    assert may_match("x = 1", ranges, pa.int64())
    assert may_match("x = 1", {}, pa.int64())
    half = {"x": ColumnRange("x", pa.scalar(5), None)}
    assert not may_match("x = 1", half, pa.int64())
    assert may_match("x = 9", half, pa.int64())


@pytest.mark.parametrize(
    ("text", "constant", "type_", "expected"),
    [
        ("x = 1", pa.scalar(1), pa.int64(), True),
        ("x = 2", pa.scalar(1), pa.int64(), False),
        ("x <> 1", pa.scalar(1), pa.int64(), False),
        ("NOT (x = 1)", pa.scalar(1), pa.int64(), False),
        ("x IS NULL", pa.scalar(1), pa.int64(), False),
        ("x IS NULL", pa.scalar(None, pa.string()), pa.int64(), True),
        ("x IS NOT NULL", pa.scalar(None, pa.string()), pa.int64(), False),
        ("x = 1", pa.scalar("01"), pa.int64(), True),
        ("x = 2", pa.scalar("01"), pa.int64(), False),
        ("x = 2", pa.scalar("1.0"), pa.int64(), True),
        ("x = 2", pa.scalar("abc"), pa.int64(), True),
        ("x = 2", pa.scalar("1"), pa.float64(), True),
        ("x = '01'", pa.scalar("01"), pa.string(), True),
        ("x = '1'", pa.scalar("01"), pa.string(), False),
        ("x = '1'", pa.scalar("01").cast(pa.large_string()), pa.string(), False),
        ("x = '2025-01-01'", pa.scalar("2025-01-01"), pa.date32(), True),
        ("x = '2025-01-02'", pa.scalar("2025-01-01"), pa.date32(), False),
        ("x = '2025-01-02'", pa.scalar("2025-1-1"), pa.date32(), True),
        ("x = '2025-01-02'", pa.scalar("2025-01-01"), pa.timestamp("us"), True),
        ("x", pa.scalar("false"), pa.bool_(), False),
        ("NOT x", pa.scalar("false"), pa.bool_(), True),
        ("x > 5", pa.scalar(NAN), pa.float64(), True),
        ("x < 5", pa.scalar(NAN), pa.float64(), False),
        ("x = 5", pa.scalar(NAN), pa.float64(), False),
        ("year(x) = 2025", pa.scalar(date(2025, 3, 1)), pa.date32(), True),
        ("month(x) = 4", pa.scalar(date(2025, 3, 1)), pa.date32(), False),
        ("x = 'a'", pa.scalar("a").cast(pa.dictionary(pa.int8(), pa.string())), pa.string(), True),
        ("x = 'b'", pa.scalar("a").cast(pa.dictionary(pa.int8(), pa.string())), pa.string(), False),
    ],
)
def test_a_column_of_one_value(text: str, constant: Any, type_: Any, expected: bool) -> None:
    assert may_match(text, {}, type_, {"x": constant}) is expected


def test_booleans() -> None:
    only_false = column_range("x", False, False, pa.bool_())
    assert not may_match("x", only_false, pa.bool_())
    assert may_match("NOT x", only_false, pa.bool_())
    assert may_match("x IS NOT TRUE", only_false, pa.bool_())
    assert not may_match("x = TRUE", only_false, pa.bool_())


def test_fields_of_structs_go_by_their_dotted_name() -> None:
    struct = pa.struct([("b", pa.int64())])
    ranges = column_range("a.b", 1, 5, pa.int64())
    assert not parse_predicate("a.b = 9").bind(pa.schema([("a", struct)])).may_match(ranges)
    both = pa.schema([("a", struct), ("a.b", pa.int64())])
    assert parse_predicate("a.b = 9").bind(both).may_match(ranges)
    assert parse_predicate('"a.b" = 9').bind(both).may_match(ranges)


def test_a_large_list_is_searched_and_not_gone_through() -> None:
    items = ", ".join(str(2 * n) for n in range(20_000))
    predicate = parse_predicate(f"x IN ({items})").bind(pa.schema([("x", pa.int64())]))
    for low in range(1, 2001, 2):
        assert not predicate.may_match(column_range("x", low, low, pa.int64()))
    assert predicate.may_match(column_range("x", 100, 100, pa.int64()))


# --- nothing that matches is ever left out ---------------------------------------------------

ROWS = rows(600, seed=7)
NARROWER = {
    "i": pa.int8(),
    "f": pa.float32(),
    "d": pa.decimal128(9, 2),
    "t": pa.timestamp("ns"),
    "s": pa.dictionary(pa.int8(), pa.string()),
    "y": pa.date64(),
}


def files() -> list[pa.RecordBatch]:
    """Small files: random ones, and ones whose rows are close to each other."""
    found = [ROWS.slice(start, 1 + start % 4) for start in range(0, 600, 50)]
    for name in SCHEMA.names:
        column = ROWS.column(name)
        plain = column.dictionary_decode() if name == "c" else column
        ordered = ROWS.take(pc.sort_indices(plain))
        found += [ordered.slice(start, 3) for start in (100, 400)]
    return found


def ranges_of(batch: pa.RecordBatch) -> dict[str, ColumnRange]:
    """What footers say: not a word about NaN, and some columns in an older, narrower type."""
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = pc.drop_null(column.dictionary_decode() if name == "c" else column)
        if not len(values):
            found[name] = ColumnRange(name, None, None, all_null=True)
            continue
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if len(values):
            order = pc.sort_indices(values)
            low, high = (_older(name, values[order[i].as_py()]) for i in (0, len(values) - 1))
            found[name] = ColumnRange(name, low, high)
    return found


def _older(name: str, scalar: Any) -> Any:
    if name not in NARROWER:
        return scalar
    try:
        return scalar.cast(NARROWER[name])
    except pa.ArrowInvalid:
        return scalar


FILES = [(batch, ranges_of(batch)) for batch in files()]


def check_nothing_is_lost(text: str) -> None:
    predicate = parse_predicate(text).bind(SCHEMA)
    for batch, ranges in FILES:
        if not predicate.may_match(ranges):
            assert not pc.any(predicate.mask(batch)).as_py(), (text, batch.to_pylist())


@given(conditions(comparisons() | checks()))
@example("NOT (f <= 5)")
@example("NOT (s LIKE 'a%') AND NOT (c IN ('a', NULL))")
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_matching_row_is_left_out(text: str) -> None:
    check_nothing_is_lost(text)


@given(conditions(st.sampled_from(CALCULATIONS).map(lambda one: one.format(op="="))))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_no_matching_row_is_left_out_by_combined_calculations(text: str) -> None:
    check_nothing_is_lost(text)


@pytest.mark.parametrize("call", CALCULATIONS)
def test_no_matching_row_is_left_out_by_a_calculation(call: str) -> None:
    for operator in ("=", "<", ">="):
        text = call.format(op=operator)
        check_nothing_is_lost(text)
        check_nothing_is_lost(f"NOT ({text})")


def test_pruning_says_nothing_about_values_that_cannot_be_evaluated() -> None:
    predicate = parse_predicate("CAST(x AS TINYINT) = 1").bind(pa.schema([("x", pa.int64())]))
    assert not predicate.may_match(column_range("x", 500, 600, pa.int64()))
    with pytest.raises(RewriteError, match="does not fit int8: 500"):
        predicate.mask(pa.record_batch({"x": [500]}))
