"""Random deletes, updates and upserts, next to a plain list of rows."""

import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from maintenance_assets import delete, sql, update, upsert
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake

Row = dict[str, Any]
Truth = bool | None
DAYS = ["a", "b", "01", None]
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("v", pa.int64()),
        ("day", pa.string()),
    ]
)


# -- the plain list ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as a function with three outcomes."""

    text: str
    holds: Callable[[Row], Truth]


def compare(column: str, operator: str, value: Any) -> Condition:
    tests: dict[str, Callable[[Any], bool]] = {
        "=": lambda found: found == value,
        "<>": lambda found: found != value,
        "<": lambda found: found < value,
        ">=": lambda found: found >= value,
    }
    shown = f"'{value}'" if isinstance(value, str) else str(value)
    return Condition(
        f"{column} {operator} {shown}",
        lambda row: None if row[column] is None else tests[operator](row[column]),
    )


def is_null(column: str) -> Condition:
    return Condition(f"{column} IS NULL", lambda row: row[column] is None)


def negated(inner: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        found = inner.holds(row)
        return None if found is None else not found

    return Condition(f"NOT ({inner.text})", holds)


def both(left: Condition, right: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        found = {left.holds(row), right.holds(row)}
        return False if False in found else None if None in found else True

    return Condition(f"({left.text}) AND ({right.text})", holds)


def either(left: Condition, right: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        found = {left.holds(row), right.holds(row)}
        return True if True in found else None if None in found else False

    return Condition(f"({left.text}) OR ({right.text})", holds)


def key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(plain(row[name]) for name in names)


def plain(value: Any) -> Any:
    """Equal where keys are: NaN is itself and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def exact(row: Row) -> tuple[Any, ...]:
    """Equal where rows are; which of two equal keys is left, 0.0 or -0.0, is not said."""
    return tuple(repr(plain(row[name])) for name in SCHEMA.names)


# -- what is done ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delete:
    where: Condition


@dataclass(frozen=True)
class Update:
    where: Condition
    values: Mapping[str, tuple[Any, Callable[[Row], Any]]]
    """By column, what is given and what it comes to."""


@dataclass(frozen=True)
class Upsert:
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    update_cols: tuple[str, ...] | None


def apply(rows: list[Row], step: Delete | Update | Upsert) -> tuple[list[Row], dict[str, int]]:
    """The rows after a step, and the figures that it has to report."""
    if isinstance(step, Delete):
        kept = [row for row in rows if step.where.holds(row) is not True]
        return kept, figures(deleted=len(rows) - len(kept))
    if isinstance(step, Update):
        meant = [step.where.holds(row) is True for row in rows]
        after = [
            {**row, **{name: new(row) for name, (_, new) in step.values.items()}} if hit else row
            for row, hit in zip(rows, meant, strict=True)
        ]
        return after, figures(updated=sum(meant))
    return merge(rows, step)


def merge(rows: list[Row], step: Upsert) -> tuple[list[Row], dict[str, int]]:
    source = {key(row, step.keys): row for row in step.rows}
    columns = [name for name in step.columns if name not in step.keys]
    columns = columns if step.update_cols is None else list(step.update_cols)
    one_copy = step.update_cols is None and set(step.columns) == set(SCHEMA.names)
    met: set[Any] = set()
    after: list[Row] = []
    updated = deleted = 0
    for row in rows:
        name = key(row, step.keys)
        if name not in source:
            after.append(row)
        elif one_copy and name in met:
            deleted += 1
        else:
            after.append({**row, **{column: source[name][column] for column in columns}})
            updated += bool(columns)
        met.add(name)
    new = [row for name, row in source.items() if name not in met]
    given = {*step.columns}
    after += [{name: row[name] if name in given else None for name in SCHEMA.names} for row in new]
    return after, figures(updated=updated, deleted=deleted, inserted=len(new))


def figures(updated: int = 0, deleted: int = 0, inserted: int = 0) -> dict[str, int]:
    return {"rows_updated": updated, "rows_deleted": deleted, "rows_inserted": inserted}


# -- chance ------------------------------------------------------------------------------------

ints = st.integers(0, 5)
floats = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
texts = st.sampled_from(["x", "y", "", None])
days = st.sampled_from(DAYS)
rows_of_data = st.fixed_dictionaries(
    {"k": ints | st.none(), "f": floats, "s": texts, "v": ints | st.none(), "day": days}
)
leaves = st.one_of(
    st.builds(compare, st.sampled_from(["k", "v"]), st.sampled_from(["=", "<>", "<", ">="]), ints),
    st.builds(
        compare, st.just("day"), st.sampled_from(["=", "<>"]), st.sampled_from(["a", "b", "01"])
    ),
    st.builds(compare, st.just("s"), st.sampled_from(["=", "<"]), st.sampled_from(["x", "y"])),
    st.builds(is_null, st.sampled_from(SCHEMA.names)),
)
conditions = st.recursive(
    leaves,
    lambda inner: (
        st.builds(negated, inner) | st.builds(both, inner, inner) | st.builds(either, inner, inner)
    ),
    max_leaves=4,
)


def literal(value: Any) -> tuple[Any, Callable[[Row], Any]]:
    return value, lambda row: value


def total(row: Row) -> Any:
    return None if row["k"] is None or row["v"] is None else row["k"] + row["v"]


updates = st.fixed_dictionaries(
    {},
    optional={
        "v": st.one_of(st.builds(literal, ints), st.just((sql("k + v"), total))),
        "k": st.one_of(st.builds(literal, ints), st.just((sql("v"), lambda row: row["v"]))),
        "s": st.one_of(st.builds(literal, texts), st.just((sql("day"), lambda row: row["day"]))),
        "day": st.one_of(st.builds(literal, days), st.just((sql("s"), lambda row: row["s"]))),
    },
).filter(bool)


@st.composite
def upserts(draw: st.DrawFn) -> Upsert:
    keys = draw(st.sampled_from([("k",), ("f",), ("k", "s"), ("day", "k"), ("s", "f")]))
    others = [name for name in SCHEMA.names if name not in keys and name != "day"]
    columns = draw(st.one_of(st.just(others), st.lists(st.sampled_from(others), unique=True)))
    columns = tuple(dict.fromkeys((*keys, *columns, "day")))  # new rows need a place
    rows = draw(st.lists(rows_of_data, max_size=5, unique_by=lambda row: key(row, keys)))
    chosen = [name for name in columns if name not in keys]
    update_cols = draw(
        st.one_of(st.none(), st.lists(st.sampled_from(chosen), unique=True).map(tuple))
        if chosen
        else st.none()
    )
    return Upsert(tuple(rows), columns, keys, update_cols)


steps = st.lists(
    st.one_of(st.builds(Delete, conditions), st.builds(Update, conditions, updates), upserts()),
    min_size=1,
    max_size=4,
)
files = st.lists(st.lists(rows_of_data, min_size=1, max_size=6), min_size=1, max_size=4)


# -- a dataset ---------------------------------------------------------------------------------


Layout = Literal["path and files", "path", "files"]
layouts = st.sampled_from(["path and files", "path", "files"])


def write(lake: Lake, contents: Sequence[Sequence[Row]], layout: Layout, *, drift: bool) -> None:
    """Each list of rows as one file in every directory that its rows belong to."""
    for number, rows in enumerate(contents):
        for directory in dict.fromkeys(directory_of(row, layout) for row in rows):
            part = [row for row in rows if directory_of(row, layout) == directory]
            table = pa.Table.from_pylist(part, SCHEMA)
            if drift and number % 2 and table.column("v").null_count == table.num_rows:
                table = table.drop_columns(["v"])
            elif drift and number % 2:
                table = table.set_column(3, "v", table.column("v").cast(pa.int16()))
            table = table.drop_columns(["day"]) if layout == "path" else table
            lake.write(f"{directory}part-{number}.parquet", table, row_group_size=2)


def directory_of(row: Row, layout: Layout) -> str:
    if layout == "files":
        return ""
    return f"day={'__HIVE_DEFAULT_PARTITION__' if row['day'] is None else row['day']}/"


def read(lake: Lake, layout: Layout) -> list[Row]:
    """All rows, none of which may be in a directory that is not its own."""
    found = []
    for name in lake.files():
        folder = name.rpartition("/")[0]
        text = folder.removeprefix("day=")
        in_path = {} if not folder else {"day": None if text.startswith("__HIVE") else text}
        for values in lake.open(name).read().to_pylist():
            row = {**dict.fromkeys(SCHEMA.names), **in_path, **values}
            assert name.startswith(directory_of(row, layout)), (name, row)
            assert ("day" in values) is (layout != "path")
            found.append(row)
    return found


def run(lake: Lake, engine: str, step: Delete | Update | Upsert, *, dry_run: bool) -> Any:
    options: dict[str, Any] = {"engine": engine, "dry_run": dry_run}
    if isinstance(step, Delete):
        return delete(lake.url, step.where.text, **options)
    if isinstance(step, Update):
        values = {name: given for name, (given, _) in step.values.items()}
        return update(lake.url, step.where.text, values, **options)
    table = pa.Table.from_pylist(list(step.rows), SCHEMA).select(list(step.columns))
    return upsert(lake.url, table, step.keys, update_cols=step.update_cols, **options)


def check_steps(
    engine: str,
    contents: Sequence[Sequence[Row]],
    todo: Sequence[Delete | Update | Upsert],
    layout: Layout,
    *,
    drift: bool,
) -> None:
    folder = tempfile.mkdtemp()
    try:
        lake = Lake(f"{folder}/lake")
        write(lake, contents, layout, drift=drift)
        expected = [row for rows in contents for row in rows]
        for step in todo:
            note(str(step))
            before = lake.tree()
            predicted = run(lake, engine, step, dry_run=True).to_dict()
            assert lake.tree() == before
            result = run(lake, engine, step, dry_run=False).to_dict()
            rows, counts = apply(expected, step)
            assert {name: result[name] for name in counts} == counts
            assert (result["rows_before"], result["rows_after"]) == (len(expected), len(rows))
            assert {**predicted, "dry_run": False} == result
            assert Counter(map(exact, read(lake, layout))) == Counter(map(exact, rows))
            assert not [name for name in lake.tree() if not name.endswith(".parquet")]
            if not any(counts.values()):
                assert lake.tree() == before
            expected = rows
    finally:
        shutil.rmtree(folder)


QUICK = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@QUICK
@given(contents=files, todo=steps, layout=layouts, drift=st.booleans())
def test_random_changes_with_pyarrow(
    contents: list[list[Row]], todo: list[Any], layout: Layout, drift: bool
) -> None:
    check_steps("pyarrow", contents, todo, layout, drift=drift)


@settings(QUICK, max_examples=20)
@given(contents=files, todo=steps, layout=layouts, drift=st.booleans())
def test_random_changes_with_duckdb(
    contents: list[list[Row]], todo: list[Any], layout: Layout, drift: bool
) -> None:
    check_steps("duckdb", contents, todo, layout, drift=drift)


@pytest.mark.spark
@ONE_WORKER
@settings(QUICK, max_examples=4)
@given(contents=files, todo=steps, layout=layouts, drift=st.booleans())
def test_random_changes_with_spark(
    spark: Any, contents: list[list[Row]], todo: list[Any], layout: Layout, drift: bool
) -> None:
    check_steps("spark", contents, todo, layout, drift=drift)
