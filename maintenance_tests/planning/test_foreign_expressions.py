"""Expressions of polars and pyarrow: they mean what their library means, and prune what is sure."""

import pickle
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.predicates import parse_predicate
from maintenance_tests.planning.expression_strategies import SCHEMA, VALUES, rows

NAN = float("nan")
col, field = pl.col, pc.field
BATCH = pa.record_batch(
    {
        "a": pa.array([1, 6, None]),
        "f": pa.array([1.0, NAN, None]),
        "s": pa.array(["x", "y", None]),
        "c": pa.array(["q", "r", None]).dictionary_encode(),
        "t": pa.array([datetime(1970, 1, 1), datetime(2025, 11, 26), None]),
        "n": pa.array([1_000, 1_001, None], pa.timestamp("ns")),
        "y": pa.array([date(2025, 1, 1), date(2025, 1, 2), None], pa.date64()),
        "st": pa.array([{"x": 1}, {"x": 2}, None]),
        "ok": pa.array([True, False, None]),
        "l": pa.array([[1, 2], [], None]),
        "wide": pa.array([Decimal(1)] * 3, pa.decimal256(60, 1)),
    }
)


def mask(expression: Any, batch: pa.RecordBatch = BATCH) -> list[bool]:
    predicate = pickle.loads(pickle.dumps(parse_predicate(expression)))
    bound = pickle.loads(pickle.dumps(predicate.bind(batch.schema)))
    found = bound.mask(batch)
    assert found.type == pa.bool_()
    assert found.null_count == 0
    result: list[bool] = found.to_pylist()
    return result


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("a") > 5, [False, True, False]),
        (~(col("a") > 5), [True, False, False]),
        ((col("a") > 0) & (col("s") == "y"), [False, True, False]),
        (col("a").is_null(), [False, False, True]),
        (col("a").is_in([1, 2]), [True, False, False]),
        (col("a").is_in({1}) | col("a").is_in([]), [True, False, False]),
        (~col("a").is_in([1, None]), [False, True, False]),
        (col("f") > 5, [False, True, False]),
        (col("f").is_nan(), [False, True, False]),
        (col("c") == "q", [True, False, False]),
        (col("t") > datetime(2025, 1, 1), [False, True, False]),
        (col("n") == datetime(1970, 1, 1, 0, 0, 0, 1), [True, True, False]),
        (col("y") == date(2025, 1, 1), [True, False, False]),
        (col("t").dt.year() == 2025, [False, True, False]),
        (col("st").struct.field("x") == 1, [True, False, False]),
        (col("l").list.len() == 2, [True, False, False]),
        (col("l").list.eval(pl.element() > 1).list.any(), [True, False, False]),
        (pl.when(col("a") > 5).then(col("ok")).otherwise(True), [True, False, True]),
        (col("s").str.to_uppercase() == "X", [True, False, False]),
        (col("s").str.contains("x|z"), [True, False, False]),
        (col("a").fill_null(7) > 6, [False, False, True]),
        (pl.coalesce("a", pl.lit(7)) > 6, [False, False, True]),
        (pl.any_horizontal(col("a") > 5, col("ok")), [True, True, False]),
        (col("ok"), [True, False, False]),
        (pl.lit(True), [True, True, True]),
        (pl.lit(None, dtype=pl.Boolean), [False, False, False]),
        (col("a").cast(pl.String) == "1", [True, False, False]),
    ],
)
def test_polars_says_what_matches(expression: pl.Expr, expected: list[bool]) -> None:
    assert mask(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (field("a") > 5, [False, True, False]),
        (~(field("a") > 5), [True, False, False]),
        ((field("a") > 0) & (field("s") == "y"), [False, True, False]),
        (field("a").is_null(), [False, False, True]),
        (field("a").isin([1, 2]), [True, False, False]),
        (~field("a").isin([1]), [False, True, True]),
        (field("f") > 0, [True, False, False]),
        (~(field("f") > 0), [False, True, False]),
        (field("c") == "q", [True, False, False]),
        (field("c").isin(["r"]), [False, True, False]),
        (field("t") > datetime(2025, 1, 1), [False, True, False]),
        (pc.year(field("t")) == 2025, [False, True, False]),
        (field("st", "x") == 1, [True, False, False]),
        (pc.starts_with(field("s"), "x"), [True, False, False]),
        (field("ok"), [True, False, False]),
        (pc.scalar(True), [True, True, True]),
        (field("wide") == Decimal(1), [True, True, True]),
    ],
)
def test_pyarrow_says_what_matches(expression: pc.Expression, expected: list[bool]) -> None:
    assert mask(expression) == expected


def test_rows_keep_their_order_in_large_batches() -> None:
    batch = pa.record_batch({"a": list(range(200_000))})
    for expression in (col("a") % 7 == 0, field("a") - field("a") / 7 * 7 == 0):
        found = parse_predicate(expression).bind(batch.schema).mask(batch)
        assert pc.indices_nonzero(found).to_pylist() == list(range(0, 200_000, 7))


def test_batches_may_lack_columns_and_have_others() -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    drifted = pa.record_batch(
        {"z": [1], "a": pa.array([6], pa.int8()), "s": pa.array(["x"]).dictionary_encode()}
    )
    for expression in ((col("a") > 5) & (col("s") == "x"), (field("a") > 5) & (field("s") == "x")):
        bound = parse_predicate(expression).bind(schema)
        assert bound.columns == ("a", "s")
        assert bound.mask(drifted).to_pylist() == [True]
        assert bound.mask(pa.record_batch({"a": [6]})).to_pylist() == [False]
        assert bound.mask(drifted.slice(0, 0)).to_pylist() == []


def python_function(values: Any) -> Any:
    return values > 1


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        (col("a") > col("a").mean(), "mean"),
        (col("a") == col("a").max(), "max"),
        (col("a").sum().over("s") > 1, "over"),
        (col("a").shift(1) == 1, "shift"),
        (col("a").diff() > 1, "diff"),
        (col("a").cum_sum() > 1, "cum_sum"),
        (col("a").rank() > 1, "rank"),
        (col("a").is_duplicated(), "is_duplicated"),
        (col("a").is_first_distinct(), "is_first_distinct"),
        (col("a").forward_fill() > 1, "fill_null_with_strategy"),
        (col("a").sort() > 1, "sort"),
        (col("a").reverse() > 1, "reverse"),
        (col("a").filter(col("ok")) > 1, "filter"),
        (col("a").head(2) > 1, "slice"),
        (col("a").sample(2) > 1, "random"),
        (col("a").shuffle() > 1, "random"),
        (col("a").unique() > 1, "unique"),
        (col("a").rolling_mean(2) > 1, "rolling"),
        (col("a").interpolate() > 1, "interpolate"),
        (col("a").first() > 1, "first"),
        (col("l").explode() > 1, "explode"),
        ((col("a") > 1).any(), "any"),
        (pl.len() > 1, "len"),
        (pl.int_range(pl.len()) > 1, "range"),
        (col("a").is_in(col("a").implode()), "is_in with a column"),
        (col("a") == pl.Series([1, 2, 3]), "literal Series"),
        (col("a").is_in(pl.Series([1, 2])), "literal Series .*to_list"),
        (col("s").str.to_date() > date(2025, 1, 1), "format"),
        (col("a").map_batches(python_function, return_dtype=pl.Boolean), "map_batches"),
        ((col("a") > 1) & (col("ok") | (col("a") + col("a").min() > 1)), "min"),
    ],
)
def test_polars_expressions_over_other_rows_are_refused_by_name(
    expression: pl.Expr, name: str
) -> None:
    with pytest.raises(ValueError, match=f"uses .*{name}.*row by row"):
        parse_predicate(expression)


def test_python_functions_of_single_values_are_allowed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expression = col("a").map_elements(lambda value: value > 1, return_dtype=pl.Boolean)
    assert mask(expression) == [False, True, False]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("zz") > 1, "Unknown column 'zz' in the polars expression. Available columns: a, f, s"),
        (field("zz") > 1, "Unknown column 'zz' in the pyarrow expression. Available columns: a, f"),
        (col("a") > "x", "polars expression cannot be evaluated: cannot compare"),
        (field("a") > "x", "pyarrow expression cannot be evaluated: .*no kernel"),
        (field("st", "zz") > 1, "pyarrow expression cannot be evaluated"),
        (col("a") + 1, "Expected a condition, but the polars expression .* gives int64"),
        (field("a") + 1, "Expected a condition, but the pyarrow expression .* gives int64"),
        (col("wide") > 1, "polars cannot hold column 'wide' of type decimal256"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(expression: Any, message: str) -> None:
    predicate = parse_predicate(expression)
    with pytest.raises(ValueError, match=message):
        predicate.bind(BATCH.schema)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pl.all() > 1, "several results"),
        (pl.col("a", "f") > 1, "several results"),
        (pl.col("^a.*$") > 1, "several results"),
        (field(0) > 1, "Name columns rather than number them"),
        (pc.Expression._call("random", []) > 0.5, "changes from call to call"),
    ],
)
def test_what_is_not_one_condition_is_refused_at_once(expression: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_predicate(expression)


def test_a_pyarrow_expression_over_other_rows_is_refused() -> None:
    for name in ("cumulative_sum", "sum", "fill_null_forward", "array_sort_indices"):
        with pytest.raises(ValueError, match=f"uses {name}, which does not work row by row"):
            parse_predicate(pc.Expression._call(name, [field("a")]) > 1)


def test_an_error_in_the_data_is_an_error_of_the_rewrite() -> None:
    cast = col("s").cast(pl.Int64) > 1
    with pytest.raises(RewriteError, match="polars expression cannot be evaluated"):
        mask(cast)
    with pytest.raises(RewriteError, match="pyarrow expression cannot be evaluated"):
        mask(field("s").cast("int64") > 1)


def test_deep_chains_are_read_without_recursion() -> None:
    chain: Any = field("a") == 0
    for n in range(2000):
        chain = chain | (field("a") == n)
    bound = parse_predicate(chain).bind(BATCH.schema)
    assert not bound.may_match({"a": ColumnRange("a", pa.scalar(5000), pa.scalar(6000))})
    many = pl.any_horizontal(*(col("a") == n for n in range(2000)))
    bound = parse_predicate(many).bind(BATCH.schema)
    assert not bound.may_match({"a": ColumnRange("a", pa.scalar(5000), pa.scalar(6000))})


def test_they_are_never_said_to_duckdb() -> None:
    for expression in (col("a") > 5, field("a") > 5):
        assert parse_predicate(expression).bind(BATCH.schema).duckdb_sql() is None


# --- pruning ---------------------------------------------------------------------------------


def may_match(expression: Any, low: Any, high: Any, type_: Any) -> bool:
    schema = pa.schema([("x", type_), ("other", pa.int64())])
    ranges = {"x": ColumnRange("x", pa.scalar(low, type_), pa.scalar(high, type_))}
    return parse_predicate(expression).bind(schema).may_match(ranges)


@pytest.mark.parametrize("x", [col("x"), field("x")], ids=["polars", "pyarrow"])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: x == 5, False),
        (lambda x: x == 15, True),
        (lambda x: x > 20, False),
        (lambda x: x >= 20, True),
        (lambda x: x < 10, False),
        (lambda x: x != 5, True),
        (lambda x: x > 20.5, False),
        (lambda x: ~(x > 5), False),
        (lambda x: (x == 5) | (x == 6), False),
        (lambda x: (x == 15) & (x > 20), False),
        (lambda x: x.is_null(), True),
        (lambda x: x + 1 == 5, True),
    ],
)
def test_comparisons_prune(x: Any, build: Callable[[Any], Any], expected: bool) -> None:
    assert may_match(build(x), 10, 20, pa.int64()) is expected


@pytest.mark.parametrize(
    ("expression", "low", "high", "type_", "expected"),
    [
        (col("x").is_in([1, 2]), 10, 20, pa.int64(), False),
        (col("x").is_in([1, 12]), 10, 20, pa.int64(), True),
        (field("x").isin([1, 2]), 10, 20, pa.int64(), False),
        (col("x").is_between(1, 2), 10, 20, pa.int64(), False),
        (col("x").is_between(20, 30, closed="right"), 10, 20, pa.int64(), False),
        (col("x").is_between(20, 30), 10, 20, pa.int64(), True),
        (col("x") == "a", "b", "c", pa.string(), False),
        (field("x") == "a", "b", "c", pa.string(), False),
        (col("x").str.starts_with("a"), "b", "c", pa.string(), False),
        (pc.starts_with(field("x"), "a"), "b", "c", pa.string(), False),
        (col("x") == date(2025, 1, 1), date(2025, 2, 1), date(2025, 2, 2), pa.date32(), False),
        (col("x") < 1.0, 1.0, 2.0, pa.float64(), False),
        (col("x") > 5.0, 1.0, 2.0, pa.float64(), True),
        (field("x") > 5.0, 1.0, 2.0, pa.float64(), False),
        (~(field("x") > 0.5), 1.0, 2.0, pa.float64(), True),
        (~(field("x") < 5.0), 1.0, 2.0, pa.float64(), True),
        (field("x") != 1.0, 1.0, 1.0, pa.float64(), True),
        (pl.any_horizontal(col("x") == 1, col("x") == 2), 10, 20, pa.int64(), False),
    ],
)
def test_other_conditions_prune(
    expression: Any, low: Any, high: Any, type_: Any, expected: bool
) -> None:
    assert may_match(expression, low, high, type_) is expected


@pytest.mark.parametrize("x", [col("x"), field("x")], ids=["polars", "pyarrow"])
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_timestamps_prune(x: Any, unit: str) -> None:
    type_ = pa.timestamp(unit)
    low, high = datetime(2025, 1, 1), datetime(2025, 1, 31)
    assert not may_match(x > datetime(2025, 2, 1), low, high, type_)
    assert not may_match(x == datetime(2025, 2, 1), low, high, type_)
    assert may_match(x == datetime(2025, 1, 31), low, high, type_)
    year = x.dt.year() if isinstance(x, pl.Expr) else pc.year(x)
    assert not may_match(year == 2024, low, high, type_)
    assert may_match(year == 2025, low, high, type_)


def test_a_nanosecond_column_matches_the_microsecond_it_lies_in() -> None:
    type_ = pa.timestamp("ns")
    late = pa.scalar(1_001, pa.int64()).cast(type_)
    ranges = {"x": ColumnRange("x", late, late)}
    schema = pa.schema([("x", type_)])
    moment = datetime(1970, 1, 1, 0, 0, 0, 1)
    assert parse_predicate(col("x") == moment).bind(schema).may_match(ranges)
    assert not parse_predicate(field("x") == moment).bind(schema).may_match(ranges)


def test_null_is_in_no_list_of_pyarrow_and_that_is_false() -> None:
    batch = pa.record_batch({"x": pa.array([None, None], pa.int64())})
    ranges = {"x": ColumnRange("x", None, None, all_null=True)}
    bound = parse_predicate(~field("x").isin([1])).bind(batch.schema)
    assert bound.mask(batch).to_pylist() == [True, True]
    assert bound.may_match(ranges)
    assert not parse_predicate(~col("x").is_in([1])).bind(batch.schema).may_match(ranges)


NAMES = ["i8", "i", "f", "g", "d", "s", "c", "y", "t", "m", "k", "b"]
LITERALS: dict[str, list[Any]] = {
    **{name: VALUES[name] for name in NAMES},
    "t": VALUES["t"][:5],
    "m": [time(0), time(10, 30)],
}
FILES = [rows(3, seed) for seed in range(30)]


@st.composite
def leaves(draw: st.DrawFn, column: Callable[[str], Any]) -> Any:
    name = draw(st.sampled_from(NAMES))
    x, value = column(name), draw(st.sampled_from(LITERALS[name]))
    if name in ("f", "g") and value != value:
        value = 1.0
    choices = [x == value, x != value, x.is_null(), ~x.is_null()]
    if name not in ("k", "c"):
        choices += [x < value, x <= value, x > value, x >= value]
    if name not in ("m", "d"):
        choices.append(_member(x, [value, draw(st.sampled_from(LITERALS[name]))]))
    return draw(st.sampled_from(choices))


def _member(x: Any, values: list[Any]) -> Any:
    return x.is_in(values) if isinstance(x, pl.Expr) else x.isin(values)


def conditions(column: Callable[[str], Any]) -> Any:
    return st.recursive(
        leaves(column),
        lambda below: (
            st.tuples(below, below).map(lambda pair: pair[0] & pair[1])
            | st.tuples(below, below).map(lambda pair: pair[0] | pair[1])
            | below.map(lambda one: ~one)
        ),
        max_leaves=4,
    )


def footer(batch: pa.RecordBatch) -> dict[str, ColumnRange]:
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = pc.drop_null(column.dictionary_decode() if name == "c" else column)
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        elif not len(values):
            found[name] = ColumnRange(name, None, None, all_null=True)
        if len(values):
            order = pc.sort_indices(values)
            low, high = values[order[0].as_py()], values[order[-1].as_py()]
            found[name] = ColumnRange(name, low, high)
    return found


FOOTERS = [(batch, footer(batch)) for batch in FILES]


def check_nothing_is_lost(expression: Any) -> None:
    bound = parse_predicate(expression).bind(SCHEMA)
    for batch, ranges in FOOTERS:
        if not bound.may_match(ranges):
            assert not pc.any(bound.mask(batch)).as_py(), str(expression)


@given(conditions(pl.col))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_row_that_polars_matches_is_left_out(expression: pl.Expr) -> None:
    check_nothing_is_lost(expression)


@given(conditions(pc.field))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_row_that_pyarrow_matches_is_left_out(expression: pc.Expression) -> None:
    check_nothing_is_lost(expression)


def test_zoned_timestamps_prune_as_instants() -> None:
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    for x in (col("x"), field("x")):
        assert not may_match(x < moment, moment, moment, pa.timestamp("us", "UTC"))
        assert may_match(x <= moment, moment, moment, pa.timestamp("us", "UTC"))
