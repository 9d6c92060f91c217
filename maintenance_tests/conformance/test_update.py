"""Rows for which a condition is true get new values; all of them see the row as it was."""

from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from maintenance_assets import ChangeResult, restore, sql, update
from maintenance_assets.errors import RewriteError, UnsupportedDatasetError
from maintenance_tests.datasets import Lake, assert_same_values


def change(
    lake: Lake, where: Any, values: dict[str, Any], engine: str = "pyarrow", **options: Any
) -> ChangeResult:
    """Update a lake on any store."""
    storage_options = dict(lake.storage_options) or None
    return update(
        lake.url, where, values, engine=engine, storage_options=storage_options, **options
    )


def quotes(lake: Lake) -> dict[str, str]:
    """Two days with one file each, the day in path and file; returns the hashes."""
    for day in ("a", "b"):
        table = {
            "id": [1, 2, 3, None],
            "bid": [1.0, 2.0, None, 4.0],
            "ask": [2.0, 4.0, 6.0, None],
            "side": ["offer", "bid", "offer", None],
            "day": [day] * 4,
        }
        lake.write(f"day={day}/1.parquet", table)
    return lake.tree()


def rows(lake: Lake, *columns: str) -> list[tuple[Any, ...]]:
    """Values of some columns, in order; None where a file has no such column."""
    tables = [lake.open(name).read().to_pylist() for name in lake.files()]
    found = [tuple(row.get(name) for name in columns) for table in tables for row in table]
    return sorted(found, key=repr)


def test_only_matching_rows_and_files_change(engine: str, lake: Lake) -> None:
    before = quotes(lake)
    result = change(lake, "side = 'offer' AND day = 'a'", {"side": "ask", "id": 9}, engine)
    assert lake.open(lake.only_file("day=a")).read().to_pydict() == {
        "id": [9, 2, 9, None],
        "bid": [1.0, 2.0, None, 4.0],
        "ask": [2.0, 4.0, 6.0, None],
        "side": ["ask", "bid", "ask", None],
        "day": ["a"] * 4,
    }
    assert lake.tree()["day=b/1.parquet"] == before["day=b/1.parquet"]
    assert result.to_dict() == {
        "partitions_affected": 1,
        "files_read": 1,
        "files_written": 1,
        "files_deleted": 0,
        "rows_before": 8,
        "rows_after": 8,
        "rows_deleted": 0,
        "rows_updated": 2,
        "rows_inserted": 0,
        "dry_run": False,
    }


def test_all_values_are_made_of_the_row_as_it_was(engine: str, local: Lake) -> None:
    quotes(local)
    change(local, "id < 3", {"bid": sql("ask"), "ask": sql("bid"), "id": sql("id + 10")}, engine)
    changed = [(11, 2.0, 1.0), (12, 4.0, 2.0), (3, None, 6.0), (None, 4.0, None)]
    assert rows(local, "id", "bid", "ask") == sorted(2 * changed, key=repr)


EXPRESSIONS: dict[str, Any] = {
    "SQL": sql("ask - bid"),
    "pyarrow": pc.field("ask") - pc.field("bid"),
    "polars": pl.col("ask") - pl.col("bid"),
}


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_new_columns_are_null_in_all_other_rows(engine: str, local: Lake, kind: str) -> None:
    before = quotes(local)
    values = {"spread": EXPRESSIONS[kind], "venue": "x", "count": 3}
    result = change(local, "side = 'offer' AND day = 'a'", values, engine)
    schema = local.open(local.only_file("day=a")).schema_arrow
    assert [str(schema.field(name).type) for name in values] == ["double", "string", "int64"]
    assert local.column("spread", "day=a") == [1.0, None, None, None]
    assert local.column("venue", "day=a") == ["x", None, "x", None]
    assert local.column("count", "day=a") == [3, None, 3, None]
    assert local.tree()["day=b/1.parquet"] == before["day=b/1.parquet"]
    assert result.stats.rows_updated == 2


def test_a_column_of_other_partitions_keeps_its_type(local: Lake) -> None:
    local.write("day=a/1.parquet", {"id": [1]})
    local.write("day=b/1.parquet", {"id": [1], "spread": [0.5]})
    change(local, "id = 1", {"spread": 2}, partition_filter={"day": "a"})
    assert str(local.open(local.only_file("day=a")).schema_arrow.field("spread").type) == "double"
    change(local, "spread = 2", {"id": 7}, partition_filter={"day": "a"})
    assert local.column("id", "day=a") == [7]


def test_a_change_of_all_rows_that_reads_no_column(engine: str, local: Lake) -> None:
    local.write("day=1/a.parquet", {"id": [1, 2]})
    assert change(local, "TRUE", {"id": 7, "new": "x"}, engine).stats.rows_updated == 2
    assert (local.column("id"), local.column("new")) == ([7, 7], ["x", "x"])
    assert change(local, "day = '1'", {"day": "2"}, engine).stats.rows_updated == 2
    assert local.column("id", "day=2") == [7, 7]


def test_null_is_a_value(engine: str, local: Lake) -> None:
    quotes(local)
    change(local, "id = 1", {"bid": None, "side": None}, engine)
    assert local.column("bid", "day=a") == [None, 2.0, None, 4.0]
    schema = local.open(local.only_file("day=a")).schema_arrow
    assert [str(field.type) for field in schema] == [
        "int64",
        "double",
        "double",
        "string",
        "string",
    ]


def test_a_new_partition_value_moves_rows(engine: str, lake: Lake) -> None:
    before = quotes(lake)
    result = change(lake, "id >= 2", {"day": "c/d", "bid": 0}, engine, partition_filter="day=a")
    assert lake.column("id", "day=a") == [1, None]
    assert lake.column("id", "day=c%2Fd") == [2, 3]
    assert lake.column("day", "day=c%2Fd") == ["c/d", "c/d"]
    assert lake.column("bid", "day=c%2Fd") == [0.0, 0.0]
    assert lake.tree()["day=b/1.parquet"] == before["day=b/1.parquet"]
    stats = result.stats
    assert (stats.partitions_affected, stats.files_written, stats.files_deleted) == (2, 2, 0)
    assert (stats.rows_updated, stats.rows_before, stats.rows_after) == (2, 4, 4)
    assert all(name.endswith(".parquet") for name in lake.tree())


def test_all_rows_move_and_the_old_directory_vanishes(engine: str, local: Lake) -> None:
    quotes(local)
    result = change(local, "day = 'a'", {"day": sql("'b'")}, engine)
    assert {name.split("/")[0] for name in local.tree()} == {"day=b"}
    assert local.column("day") == ["b"] * 8
    assert (result.stats.files_deleted, result.stats.rows_updated) == (1, 4)


def test_rows_move_where_the_path_alone_has_the_column(engine: str, local: Lake) -> None:
    for month in ("01", "02"):
        local.write(f"year=2025/month={month}/1.parquet", {"id": [1, 2, 3]})
    change(local, "month = '01' AND id > 1", {"month": sql("CASE id WHEN 2 THEN '02' END")}, engine)
    assert local.column("id", "year=2025/month=01") == [1]
    assert sorted(local.column("id", "year=2025/month=02")) == [1, 2, 2, 3]
    assert local.column("id", "year=2025/month=__HIVE_DEFAULT_PARTITION__") == [3]
    assert {n for f in local.files() for n in local.open(f).schema_arrow.names} == {"id"}


def test_a_column_of_nothing_but_null_takes_the_type_of_its_first_values(
    engine: str, local: Lake
) -> None:
    local.write("a.parquet", {"id": [1, 2], "x": pa.nulls(2), "y": pa.nulls(2)})
    local.write("b.parquet", {"id": [3], "x": pa.nulls(1), "y": pa.nulls(1)})
    result = change(local, "id = 2", {"x": "b", "y": sql("id + 1")}, engine)
    assert any("null becomes string" in note for note in result.notes)
    assert rows(local, "id", "x", "y") == [(1, None, None), (2, "b", 3), (3, None, None)]
    change(local, "x IS NULL AND id = 3", {"x": "c", "y": None}, engine)
    assert rows(local, "id", "x", "y") == [(1, None, None), (2, "b", 3), (3, "c", None)]


def test_a_file_outside_of_the_partitions_holds_their_column_itself(
    engine: str, local: Lake
) -> None:
    local.write("1.parquet", {"id": [1, 2]})
    local.write("month=01/1.parquet", {"id": [3, 4]})
    result = change(local, "id IN (1, 3)", {"month": "02"}, engine)
    assert result.stats.rows_updated == 2
    held = [local.open(name).read().to_pydict() for name in local.files() if "/" not in name]
    assert held == [{"id": [1, 2], "month": ["02", None]}]
    assert local.column("id", "month=01") == [4]
    assert local.read("month=02").to_pydict() == {"id": [3]}


def test_rows_move_to_the_directory_that_has_their_value_already(local: Lake) -> None:
    for month in ("01", "02"):
        local.write(f"month={month}/1.parquet", {"id": [1, 2], "month": [int(month)] * 2})
    change(local, "id = 2", {"month": sql("month + 1")})
    assert local.column("month", "month=02") == [2, 2]
    assert local.column("month", "month=3") == [3]
    assert {name.split("/")[0] for name in local.files()} == {"month=01", "month=02", "month=3"}


def test_rows_that_move_share_files(local: Lake) -> None:
    for part in range(10):
        local.write(f"day=a/{part}.parquet", {"id": [part, part + 100], "day": ["a", "a"]})
    result = change(local, "id < 100", {"day": sql("CASE WHEN id < 5 THEN 'b' ELSE 'c' END")})
    assert (len(local.files("day=b")), len(local.files("day=c"))) == (1, 1)
    assert local.column("id", "day=b") == [0, 1, 2, 3, 4]
    assert len(local.files("day=a")) == 10
    assert result.stats.files_written == 12


def test_a_dry_run_predicts_where_rows_go(engine: str, local: Lake) -> None:
    before = quotes(local)
    values = {"day": sql("side"), "new": 1}
    predicted = change(local, "bid > 0", values, engine, dry_run=True).to_dict()
    assert local.tree() == before
    real = change(local, "bid > 0", values, engine).to_dict()
    assert predicted == {**real, "dry_run": True}
    places = {name.split("/")[0] for name in local.files()}
    assert places == {"day=a", "day=b", "day=bid", "day=offer", "day=__HIVE_DEFAULT_PARTITION__"}


def test_an_expression_is_only_asked_where_rows_match(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"text": ["1", "x", "3"], "number": [0, 0, 0]})
    change(local, "text <> 'x'", {"number": sql("CAST(text AS INTEGER)")}, engine)
    assert local.column("number") == [1, 0, 3]
    before = local.tree()
    with pytest.raises((ValueError, RewriteError), match=r"number|text"):
        change(local, "text = 'x'", {"number": sql("CAST(text AS INTEGER)")}, engine)
    assert local.tree() == before


def test_values_that_do_not_fit_are_refused(engine: str, local: Lake) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int8(), nullable=False),
            ("price", pa.decimal128(5, 2)),
            ("n", pa.int8()),
        ]
    )
    local.write("a.parquet", pa.table([[1, 2], [Decimal("1.50"), None], [100, 1]], schema=schema))
    before = local.tree()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"id": 300}, "id"),
        ({"id": None}, "id"),
        ({"id": "x"}, "id"),
        ({"price": Decimal("1.555")}, "price"),
        ({"n": sql("n * 2")}, "n"),
    ]
    for values, column in refused:
        with pytest.raises((ValueError, RewriteError), match=f"[Cc]olumn '{column}'"):
            change(local, "id > 0", values, engine)
    assert local.tree() == before
    change(local, "id = 2", {"n": sql("n * 2"), "price": Decimal("999.99")}, engine)
    assert local.read().schema.equals(schema)
    assert (local.column("n"), local.column("price")[1]) == ([100, 2], Decimal("999.99"))


def test_a_narrow_file_takes_the_type_of_the_dataset_where_it_changes(local: Lake) -> None:
    local.write("a.parquet", {"id": [1], "n": pa.array([1], pa.int8())})
    local.write("b.parquet", {"id": [2], "n": pa.array([2**40], pa.int64())})
    result = change(local, "id = 1", {"n": 2**41})
    assert sorted(local.column("n")) == [2**40, 2**41]
    assert result.notes == ("column 'n': int8 becomes int64 where it changes",)


def test_categories_take_new_values(engine: str, local: Lake) -> None:
    plain = pa.array(["x", "y", "x"]).dictionary_encode()
    ordered = pa.DictionaryArray.from_arrays([0, 1, 0], ["low", "high"], ordered=True)
    narrow = pa.array(["x", "y", None], pa.dictionary(pa.int8(), pa.string()))
    local.write("a.parquet", pa.table({"id": [1, 2, 3], "p": plain, "o": ordered, "n": narrow}))
    schema = local.read().schema
    change(local, "id <> 2", {"p": "z", "o": "high", "n": sql("o")}, engine)
    assert local.read().schema.equals(schema)
    found = local.read().to_pydict()
    assert (found["p"], found["o"]) == (["z", "y", "z"], ["high", "high", "high"])
    assert found["n"] == ["low", "y", "low"]
    with pytest.raises(RewriteError, match=r"column 'o' .* 'medium' has no place"):
        change(local, "id = 1", {"o": "medium"}, engine)


def test_other_columns_keep_every_bit(engine: str, local: Lake) -> None:
    bits = pa.array([0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000], pa.uint64())
    table = pa.table(
        {
            "id": [1, 2, 3],
            "nan": bits.view(pa.float64()),
            "at": pa.array([1, None, 3], pa.timestamp("ns", "Asia/Tokyo")),
            "tags": [[1, None], None, []],
            "view": pa.array(["a", None, "c"], pa.string_view()),
        }
    )
    local.write("a.parquet", table)
    expected = local.read().drop_columns(["id"])
    change(local, "id = 2", {"id": 20}, engine)
    assert local.column("id") == [1, 20, 3]
    assert_same_values(local.read().drop_columns(["id"]), expected)


def test_a_declared_order_is_only_kept_while_it_holds(local: Lake) -> None:
    order = [pq.SortingColumn(0)]
    local.write("a.parquet", {"id": [1, 2, 3], "v": [1, 2, 3]}, sorting_columns=order)
    change(local, "id = 2", {"v": 9})
    assert local.open(local.only_file()).metadata.row_group(0).sorting_columns
    change(local, "id = 2", {"id": 9})
    assert not local.open(local.only_file()).metadata.row_group(0).sorting_columns


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "at least one column"),
        ([("a", 1)], "dict"),
        ({"": 1}, "column names"),
        ({"Bid": 1}, "'Bid' would differ from column 'bid' in case only"),
        ({"new": None}, "'new' is new and NULL tells no type"),
        ({"bid": sql("nope + 1")}, "Unknown column 'nope'"),
        ({"nested.x": 1}, "'nested.x' is a field of column 'nested'"),
    ],
)
def test_wrong_values_are_refused(local: Lake, values: Any, message: str) -> None:
    local.write("a.parquet", {"bid": [1.0], "nested": [{"x": 1}]})
    before = local.tree()
    with pytest.raises(ValueError, match=message):
        change(local, "bid > 0", values)
    assert local.tree() == before


def test_text_is_not_assigned_to_a_number(engine: str, local: Lake) -> None:
    before = quotes(local)
    with pytest.raises(ValueError) as caught:
        change(local, "id = 1", {"id": sql("'x'")}, engine)
    expected = "Column 'id': 'x' is not a value of int64: text cannot be assigned to int64"
    assert str(caught.value) == expected
    assert local.tree() == before


def test_an_overflow_names_column_and_expression_on_one_line(engine: str, local: Lake) -> None:
    before = quotes(local)
    with pytest.raises(RewriteError) as caught:
        change(local, "id > 0 AND day = 'a'", {"id": sql("id * 4000000000000000000")}, engine)
    assert str(caught.value) == (
        "Column 'id': A result of * is out of range for BIGINT (in: id * 4000000000000000000). "
        "Nothing was changed."
    )
    assert local.tree() == before


def test_rows_of_a_path_that_contradicts_its_file_do_not_move(local: Lake) -> None:
    local.write("day=a/1.parquet", {"id": [1], "day": ["x"]})
    before = local.tree()
    with pytest.raises(UnsupportedDatasetError, match=r"'day' of .* holds 'x'"):
        change(local, "id = 1", {"day": "b"})
    assert local.tree() == before


def test_moved_rows_come_back(lake: Lake, tmp_path: Any) -> None:
    before = quotes(lake)
    backups = str(tmp_path / "backups")
    result = change(lake, "id IS NOT NULL", {"day": "c", "n": 1}, backup_path=backups)
    assert result.backup_id is not None
    options = dict(lake.storage_options) or None
    restore(lake.url, result.backup_id, backup_path=backups, storage_options=options)
    assert lake.tree() == before
