"""Values for columns: a literal is a literal, an expression is one, and nothing is cut off."""

import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import maintenance_assets
from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.values import derived_columns, parse_value, sql

BATCH = pa.record_batch(
    {
        "i": pa.array([1, -5, None], pa.int32()),
        "big": pa.array([2**53 + 1, 0, None], pa.int64()),
        "f": pa.array([1.5, float("nan"), None]),
        "d": pa.array([Decimal("1.25"), Decimal(-3), None], pa.decimal128(10, 2)),
        "s": pa.array(["ab", "", None]),
        "t": pa.array([datetime(2025, 11, 26, 10, 30), datetime(1970, 1, 1), None]),
        "z": pa.array([datetime(2025, 12, 31, 23, 30, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "y": pa.array([date(2025, 11, 26), None, None]),
        "l": pa.array([[1], None, []], pa.list_(pa.int64())),
        "c": pa.array(["q", "r", None]).dictionary_encode(),
    }
)


def evaluated(value: Any, target: Any = None, column: str = "x") -> Any:
    bound = pickle.loads(pickle.dumps(parse_value(value))).bind(BATCH.schema, target, column=column)
    found = pickle.loads(pickle.dumps(bound)).evaluate(BATCH)
    assert found.type == bound.type
    assert len(found) == 3
    found.validate(full=True)
    return found


# --- literals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("ask", pa.string()),
        ("a = b", pa.string()),
        (5, pa.int64()),
        (1.5, pa.float64()),
        (True, pa.bool_()),
        (b"x", pa.binary()),
        (Decimal("1.50"), pa.decimal128(3, 2)),
        (date(2025, 1, 1), pa.date32()),
        (datetime(2025, 1, 1), pa.timestamp("us")),
        (time(10), pa.time64("us")),
        (timedelta(days=1), pa.duration("us")),
        ([1, 2], pa.list_(pa.int64())),
        ({"a": 1}, pa.struct([("a", pa.int64())])),
        (None, pa.null()),
        (np.int16(5), pa.int16()),
        (np.float32(0.5), pa.float32()),
        (np.str_("x"), pa.string()),
        (pa.scalar(5, pa.int8()), pa.int8()),
        (UUID(int=5), pa.uuid()),
        (2**64 - 1, pa.uint64()),
        (np.datetime64("2025-01-01").item(), pa.date32()),
    ],
)
def test_a_literal_has_the_type_it_comes_with(value: Any, type_: Any) -> None:
    found = evaluated(value)
    assert found.type == type_
    expected = value.as_py() if isinstance(value, pa.Scalar) else value
    assert found.to_pylist() == [expected] * 3


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (5, pa.int8(), 5),
        (5.0, pa.int8(), 5),
        (2**64 - 1, pa.uint64(), 2**64 - 1),
        (2**70, pa.decimal128(30, 0), 2**70),
        (np.datetime64("2025-01-01"), pa.date32(), date(2025, 1, 1)),
        (5, pa.float32(), 5.0),
        (5, pa.decimal128(5, 2), Decimal("5.00")),
        (0.1, pa.decimal128(5, 2), Decimal("0.10")),
        (0.1, pa.float32(), np.float32(0.1)),
        (Decimal("0.1"), pa.float64(), 0.1),
        (Decimal("1.5"), pa.decimal32(5, 2), Decimal("1.50")),
        (1.5, pa.float16(), 1.5),
        ("x", pa.large_string(), "x"),
        ("x", pa.string_view(), "x"),
        ("x", pa.dictionary(pa.int8(), pa.string()), "x"),
        ("2025-01-01", pa.date32(), date(2025, 1, 1)),
        ("2025-01-01", pa.date64(), date(2025, 1, 1)),
        ("2025-01-01 10:00", pa.timestamp("ms"), datetime(2025, 1, 1, 10)),
        ("10:00", pa.time32("s"), time(10)),
        (date(2025, 1, 1), pa.timestamp("us"), datetime(2025, 1, 1)),
        (datetime(2025, 1, 1), pa.date32(), date(2025, 1, 1)),
        (np.datetime64("2025-01-01T10:00:00.5"), pa.timestamp("us"), None),
        (timedelta(seconds=1), pa.duration("ms"), timedelta(seconds=1)),
        (str(UUID(int=5)), pa.uuid(), UUID(int=5)),
        (UUID(int=5), pa.binary(16), UUID(int=5).bytes),
        (b"ab", pa.binary(2), b"ab"),
        (None, pa.int8(), None),
        (pa.scalar(None, pa.string()), pa.int8(), None),
        (pa.scalar(5, pa.int64()), pa.int8(), 5),
        ([1, None], pa.list_(pa.int8()), [1, None]),
        ([], pa.large_list(pa.int8()), []),
        ({"a": 1}, pa.struct([("a", pa.int8()), ("b", pa.string())]), {"a": 1, "b": None}),
        ({"k": 1}, pa.map_(pa.string(), pa.int8()), [("k", 1)]),
        ({"a": ["x"]}, pa.struct([("a", pa.list_(pa.string_view()))]), {"a": ["x"]}),
    ],
)
def test_a_literal_takes_the_type_of_its_column(value: Any, target: Any, expected: Any) -> None:
    found = evaluated(value, target)
    assert found.type == target
    if expected is not None or value is None:
        assert found.to_pylist() == [expected] * 3


def test_a_naive_time_is_wall_clock_time_of_the_zone_of_its_column() -> None:
    berlin = pa.timestamp("us", "Europe/Berlin")
    found = evaluated(datetime(2025, 7, 1, 12), berlin)[0].as_py()
    assert found == datetime(2025, 7, 1, 10, tzinfo=UTC)
    assert evaluated(datetime(2025, 7, 1, 12, tzinfo=UTC), berlin)[0].as_py() == datetime(
        2025, 7, 1, 12, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("value", "target", "message"),
    [
        (500, pa.int8(), "500 does not fit int8"),
        (-1, pa.uint8(), "-1 does not fit uint8"),
        (5.5, pa.int8(), "5.5 does not fit int8"),
        (float("nan"), pa.int8(), "nan does not fit int8"),
        (2**53 + 1, pa.float64(), "9007199254740993 does not fit double"),
        (1e300, pa.float32(), r"1e\+300 does not fit float"),
        (1e10, pa.float16(), "out of range"),
        (Decimal("1.255"), pa.decimal128(10, 2), r"Decimal\('1.255'\) does not fit"),
        (0.125, pa.decimal128(10, 2), "0.125 does not fit"),
        ("x", pa.int8(), "'x' is not a value of int8: text cannot be assigned to int8"),
        ("5", pa.int8(), "'5' is not a value of int8"),
        (5, pa.string(), "5 is not a value of text"),
        (True, pa.int8(), "True is not a value of int8"),
        (1, pa.bool_(), "1 is not a value of bool"),
        ("2025-13-01", pa.date32(), "'2025-13-01' is not a"),
        (datetime(2025, 1, 1, 10), pa.date32(), "does not fit date32"),
        (datetime(2025, 1, 1, tzinfo=UTC), pa.timestamp("us"), "assigned to .*has a time zone"),
        ("2025-01-01 00:00:00.5", pa.timestamp("s"), "does not fit timestamp"),
        (b"abc", pa.binary(2), "widths must match"),
        ([1, 500], pa.list_(pa.int8()), "500 does not fit int8"),
        ("ab", pa.list_(pa.string()), "'ab' does not fit list"),
        ({"z": 1}, pa.struct([("a", pa.int8())]), "has no field 'z'"),
        (5, pa.struct([("a", pa.int8())]), "5 does not fit struct"),
        ({1, 2}, None, "one value, not a set"),
        (pa.array([1]), pa.int64(), "one value, not a Int64Array"),
        (pa.chunked_array([[1]]), pa.int64(), "one value, not a ChunkedArray"),
        (pl.Series([1]), pa.int64(), "one value, not a Series"),
        (object(), pa.int64(), "of type object is not a value"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused_by_name(
    value: Any, target: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=f"Column 'side': .*{message}"):
        parse_value(value).bind(BATCH.schema, target, column="side")


# --- expressions -----------------------------------------------------------------------------


def test_text_is_a_literal_unless_it_is_marked_as_sql() -> None:
    assert evaluated("i + 1").to_pylist() == ["i + 1"] * 3
    assert evaluated(sql("i + 1")).to_pylist() == [2, -4, None]
    assert maintenance_assets.sql is sql
    with pytest.raises(ValueError, match="takes text, not int"):
        sql(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("i + 1", pa.int64(), [2, -4, None]),
        ("i * 1.5", pa.decimal128(12, 1), [Decimal("1.5"), Decimal("-7.5"), None]),
        ("i / 2", pa.float64(), [0.5, -2.5, None]),
        ("d + 1", pa.decimal128(22, 2), None),
        ("d - d", pa.decimal128(11, 2), [Decimal(0), Decimal(0), None]),
        ("d * d", pa.decimal128(20, 4), [Decimal("1.5625"), Decimal(9), None]),
        ("round(d, 1)", pa.decimal128(10, 1), [Decimal("1.3"), Decimal(-3), None]),
        ("floor(d)", pa.decimal128(9, 0), [Decimal(1), Decimal(-3), None]),
        ("abs(i)", pa.int64(), [1, 5, None]),
        ("year(t)", pa.int64(), [2025, 1970, None]),
        ("hour(t)", pa.int64(), [10, 0, None]),
        ("year(z)", pa.int64(), [2025] * 3),
        ("day(y)", pa.int64(), [26, None, None]),
        ("CAST(t AS DATE)", pa.date32(), [date(2025, 11, 26), date(1970, 1, 1), None]),
        ("y + 1", pa.date32(), [date(2025, 11, 27), None, None]),
        ("y - DATE '2025-11-01'", pa.int64(), [25, None, None]),
        ("t - t", pa.duration("us"), [timedelta(0), timedelta(0), None]),
        ("date_trunc('hour', t)", pa.timestamp("us"), None),
        ("strftime(t, '%Y')", pa.string(), ["2025", "1970", None]),
        ("s || '!'", pa.string(), ["ab!", "!", None]),
        ("concat(s, i)", pa.string(), ["ab1", "-5", ""]),
        ("upper(s)", pa.string(), ["AB", "", None]),
        ("length(s)", pa.int64(), [2, 0, None]),
        ("CAST(i AS VARCHAR)", pa.string(), ["1", "-5", None]),
        ("CAST(d AS VARCHAR)", pa.string(), ["1.25", "-3.00", None]),
        (
            "CAST(t AS VARCHAR)",
            pa.string(),
            ["2025-11-26 10:30:00", "1970-01-01 00:00:00", None],
        ),
        ("CASE WHEN i > 0 THEN 'up' WHEN i < 0 THEN 'down' END", pa.string(), ["up", "down", None]),
        ("coalesce(s, 'none')", pa.string(), ["ab", "", "none"]),
        ("coalesce(i, 0)", pa.int64(), [1, -5, 0]),
        ("coalesce(y, '2000-01-01')", pa.date32(), None),
        ("i > 0", pa.bool_(), [True, False, None]),
        ("l", pa.list_(pa.int64()), [[1], None, []]),
        ("c", pa.dictionary(pa.int32(), pa.string()), ["q", "r", None]),
        ("CAST(NULL AS BIGINT)", pa.int64(), [None] * 3),
        ("NULL", pa.null(), [None] * 3),
        ("'2025-01-01'", pa.string(), ["2025-01-01"] * 3),
    ],
)
def test_an_expression_gives_a_new_column_its_type(text: str, type_: Any, expected: Any) -> None:
    found = evaluated(sql(text))
    assert found.type == type_
    if expected is not None:
        assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("i + 1", pa.int8(), [2, -4, None]),
        ("i", pa.float32(), [1.0, -5.0, None]),
        ("i / 2", pa.float32(), [0.5, -2.5, None]),
        ("f * 2", pa.decimal128(5, 2), RewriteError),
        ("d * 2", pa.decimal128(10, 2), [Decimal("2.50"), Decimal(-6), None]),
        ("round(d * 1.1, 2)", pa.decimal128(10, 2), [Decimal("1.38"), Decimal("-3.30"), None]),
        ("year(t)", pa.int16(), [2025, 1970, None]),
        ("s || 'x'", pa.dictionary(pa.int8(), pa.string()), ["abx", "x", None]),
        ("c", pa.string(), ["q", "r", None]),
        ("y", pa.timestamp("ms"), [datetime(2025, 11, 26), None, None]),
        ("'2025-01-01'", pa.date32(), [date(2025, 1, 1)] * 3),
        ("NULL", pa.int8(), [None] * 3),
        ("1.5", pa.float32(), [1.5] * 3),
        ("l", pa.list_(pa.int64()), [[1], None, []]),
    ],
)
def test_an_expression_is_cast_strictly_to_its_column(
    text: str, target: Any, expected: Any
) -> None:
    if expected is RewriteError:
        with pytest.raises(RewriteError, match="Column 'x': A value does not fit"):
            evaluated(sql(text), target)
        return
    found = evaluated(sql(text), target)
    assert found.type == target
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("i * 100", pa.int8(), "Column 'x': A value does not fit int8: -500"),
        ("big", pa.float64(), "Column 'x': 9007199254740993 is not exact in double"),
        ("d * 1.1", pa.decimal128(10, 2), r"Column 'x': .*Decimal\('1.375'\)"),
        ("f * 1e300 * 1e8", pa.float32(), "Column 'x': .*does not fit float"),
        ("i / 2", pa.int64(), "Column 'x': .*0.5"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_an_error(
    text: str, target: Any, message: str
) -> None:
    bound = parse_value(sql(text)).bind(BATCH.schema, target, column="x")
    with pytest.raises(RewriteError, match=message):
        bound.evaluate(BATCH)


def test_what_cannot_be_calculated_is_told_on_one_line() -> None:
    text = "CASE WHEN i > 0\n  THEN big * 4000 END"
    with pytest.raises(RewriteError) as caught:
        evaluated(sql(text))
    said = "Column 'x': A result of * is out of range for BIGINT (at 'big * 4000' in: THEN big * "
    assert str(caught.value) == f"{said}4000 END)"
    with pytest.raises(RewriteError, match="Column 'x': The pyarrow expression cannot be"):
        evaluated(pc.field("big") * 4000)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("s", pa.int64(), "Column 'x': Values of type text do not go into a column of type int64"),
        ("i", pa.string(), "say what is meant with CAST"),
        ("s", pa.date32(), "say what is meant with CAST"),
        ("t", pa.date32(), "say what is meant with CAST"),
        ("z", pa.timestamp("us"), "say what is meant with CAST"),
        ("l", pa.list_(pa.string()), "say what is meant with CAST"),
        ("300", pa.int8(), "Column 'x': 300 does not fit int8"),
        ("nothing", None, "Unknown column 'nothing'. Available columns: i, big"),
        ("i +", None, "Expected a value"),
    ],
)
def test_an_expression_of_another_type_is_refused_before_anything_is_read(
    text: str, target: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_value(sql(text)).bind(BATCH.schema, target, column="x")


def test_columns_are_those_the_expression_reads() -> None:
    assert parse_value(sql("coalesce(i, big, 5)")).bind(BATCH.schema).columns == ("i", "big")
    assert parse_value("i").bind(BATCH.schema).columns == ()


def test_ordered_categories_are_copied_as_they_are() -> None:
    categories = pa.DictionaryArray.from_arrays([1, 0], ["b", "a"], ordered=True)
    batch = pa.record_batch({"c": categories})
    found = parse_value(sql("c")).bind(batch.schema).evaluate(batch)
    assert found.type.ordered
    assert found.to_pylist() == ["a", "b"]


def test_more_categories_than_their_index_counts_are_refused() -> None:
    batch = pa.record_batch({"s": [str(n) for n in range(300)]})
    small = pa.dictionary(pa.int8(), pa.string())
    with pytest.raises(RewriteError, match="Column 'c'"):
        parse_value(sql("s")).bind(batch.schema, small, column="c").evaluate(batch)


# --- expressions of other libraries ----------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "target", "type_", "expected"),
    [
        (pl.col("i") * 2, None, pa.int32(), [2, -10, None]),
        (pl.col("i") * 2, pa.int8(), pa.int8(), [2, -10, None]),
        (pl.col("s") + "!", None, pa.string(), ["ab!", "!", None]),
        (pl.col("t").dt.date(), None, pa.date32(), [date(2025, 11, 26), date(1970, 1, 1), None]),
        (pl.lit("ask"), pa.string(), pa.string(), ["ask"] * 3),
        (pl.col("l"), None, pa.list_(pa.int64()), [[1], None, []]),
        (pl.col("c"), None, pa.string(), ["q", "r", None]),
        (pc.field("i") * 2, None, pa.int32(), [2, -10, None]),
        (pc.field("i") * 2, pa.int64(), pa.int64(), [2, -10, None]),
        (pc.year(pc.field("t")), pa.int16(), pa.int16(), [2025, 1970, None]),
        (pc.scalar("ask"), pa.large_string(), pa.large_string(), ["ask"] * 3),
    ],
)
def test_expressions_of_polars_and_pyarrow_are_values(
    value: Any, target: Any, type_: Any, expected: Any
) -> None:
    found = evaluated(value, target)
    assert found.type == type_
    assert found.to_pylist() == expected


@pytest.mark.parametrize("value", [pl.col("i") * 100, pc.field("i") * 100])
def test_their_results_are_cast_strictly_as_well(value: Any) -> None:
    with pytest.raises(RewriteError, match="Column 'x': A value does not fit int8: -500"):
        evaluated(value, pa.int8())
    with pytest.raises(ValueError, match="Column 'x': Values of type int32 do not go"):
        evaluated(value, pa.string())


# --- derived columns -------------------------------------------------------------------------


def test_derived_columns_are_sql() -> None:
    derived = derived_columns({"year": "year(t)", "hour": "hour(t)", "five": 5, "b": pl.col("i")})
    bound = {name: value.bind(BATCH.schema, column=name) for name, value in derived.items()}
    assert [str(one.type) for one in bound.values()] == ["int64", "int64", "int64", "int32"]
    assert bound["year"].evaluate(BATCH).to_pylist() == [2025, 1970, None]
    assert bound["five"].evaluate(BATCH).to_pylist() == [5, 5, 5]
    with pytest.raises(ValueError, match="Unknown function yeer"):
        derived_columns({"year": "yeer(t)"})
