"""Rows for which a condition is true go, exactly those, and nothing else changes."""

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from maintenance_assets import ChangeResult, delete, restore
from maintenance_assets.errors import RewriteError, UnsupportedDatasetError
from maintenance_tests.datasets import Lake, assert_same_table

OWN_NAME = r"part-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.parquet"


def remove(lake: Lake, where: Any, engine: str = "pyarrow", **options: Any) -> ChangeResult:
    """Delete from a lake on any store."""
    storage_options = dict(lake.storage_options) or None
    return delete(lake.url, where, engine=engine, storage_options=storage_options, **options)


def trades(lake: Lake) -> dict[str, str]:
    """Two days with two files each; returns the hashes."""
    for number, name in enumerate(("day=a/1", "day=a/2", "day=b/1", "day=b/2")):
        ids = list(range(10 * number, 10 * number + 4))
        prices = [1.0, None, 3.0, float(number)]
        table = {"id": ids, "price": prices, "day": [name[4]] * 4}
        lake.write(f"{name}.parquet", table)
    return lake.tree()


def counts(result: ChangeResult) -> tuple[int, ...]:
    """Rows deleted, files written and files deleted."""
    stats = result.stats
    return stats.rows_deleted, stats.files_written, stats.files_deleted


def test_matching_rows_go_and_other_files_stay_byte_for_byte(engine: str, lake: Lake) -> None:
    before = trades(lake)
    result = remove(lake, "id = 11 OR id = 21", engine)
    assert sorted(lake.column("id")) == [0, 1, 2, 3, 10, 12, 13, 20, 22, 23, 30, 31, 32, 33]
    after = lake.tree()
    same = {"day=a/1.parquet", "day=b/2.parquet"}
    assert {name: after.get(name) for name in same} == {name: before[name] for name in same}
    assert not {"day=a/2.parquet", "day=b/1.parquet"} & {*after}
    assert all(name.endswith(".parquet") for name in after)
    assert result.to_dict() == {
        "partitions_affected": 2,
        "files_read": 2,
        "files_written": 2,
        "files_deleted": 0,
        "rows_before": 16,
        "rows_after": 14,
        "rows_deleted": 2,
        "rows_updated": 0,
        "rows_inserted": 0,
        "dry_run": False,
    }
    assert (result.engine, result.files_pruned) == (engine, 2)


def test_rows_that_stay_keep_their_order(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": list(range(5000))}, row_group_size=700)
    remove(local, "id % 3 = 0", engine)
    assert local.column("id") == [n for n in range(5000) if n % 3]


def test_a_row_stays_where_the_condition_is_null(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": [1, 2, 3, 4], "price": [1.0, None, 3.0, None]})
    remove(local, "NOT (price = 1.0)", engine)
    assert local.column("id") == [1, 2, 4]
    remove(local, "price <> 1.0 OR id = 2", engine)
    assert local.column("id") == [1, 4]


@pytest.mark.parametrize("always", ["TRUE", "1 = 1", pl.lit(True)], ids=str)
def test_a_condition_that_reads_no_column(local: Lake, always: Any) -> None:
    trades(local)
    assert remove(local, "FALSE").stats.rows_deleted == 0
    assert remove(local, always, partition_filter="day=a").stats.rows_deleted == 8
    assert remove(local, always).stats.rows_deleted == 8


CONDITIONS: dict[str, Any] = {
    "SQL": "price > 2 AND day = 'a'",
    "pyarrow": (pc.field("price") > 2) & (pc.field("day") == "a"),
    "polars": (pl.col("price") > 2) & (pl.col("day") == "a"),
}


@pytest.mark.parametrize("kind", CONDITIONS)
def test_conditions_of_all_libraries(engine: str, local: Lake, kind: str) -> None:
    trades(local)
    assert remove(local, CONDITIONS[kind], engine).stats.rows_deleted == 2
    assert sorted(local.column("id", "day=a")) == [0, 1, 3, 10, 11, 13]
    assert len(local.column("id", "day=b")) == 8


def test_a_condition_on_a_column_of_the_path_alone(engine: str, local: Lake) -> None:
    for month in ("01", "1", "__HIVE_DEFAULT_PARTITION__"):
        local.write(f"month={month}/a.parquet", {"id": [1, 2]})
    before = local.tree()
    result = remove(local, "month = '01' AND id = 1", engine)
    assert counts(result) == (1, 1, 0)
    assert result.files_pruned == 2
    assert local.column("id", "month=01") == [2]
    assert "month" not in local.open(local.only_file("month=01")).schema_arrow.names
    kept = {"month=1/a.parquet", "month=__HIVE_DEFAULT_PARTITION__/a.parquet"}
    assert {name: local.tree()[name] for name in kept} == {name: before[name] for name in kept}
    assert remove(local, "month IS NULL AND id = 2", engine).stats.rows_deleted == 1
    with pytest.raises(ValueError, match="month"):
        remove(local, "month = 1", engine)


def test_a_partition_filter_bounds_what_is_looked_at(local: Lake) -> None:
    trades(local)
    result = remove(local, "price = 1.0", partition_filter={"day": "b"})
    assert (result.stats.rows_before, result.stats.rows_after) == (8, 6)
    assert len(local.column("id", "day=a")) == 8
    nested = Lake(f"{local.url}-nested")
    for place in ("a=1/b=1", "a=1/b=2", "a=2/b=1"):
        nested.write(f"{place}/x.parquet", {"id": [1, 2]})
    remove(nested, "id = 1", partition_filter={"b": 1})
    assert [len(nested.column("id", d)) for d in ("a=1/b=1", "a=1/b=2", "a=2/b=1")] == [1, 2, 1]
    remove(nested, "id = 2", partition_filter="a=1/b=2")
    assert nested.column("id", "a=1/b=2") == [1]


def test_a_file_without_rows_left_goes(engine: str, local: Lake) -> None:
    trades(local)
    result = remove(local, "day = 'a'", engine)
    assert counts(result) == (8, 0, 2)
    assert [name for name in local.tree() if name.startswith("day=a")] == []
    assert len(local.column("id")) == 8


def test_deleting_everything_leaves_the_schema(engine: str, local: Lake) -> None:
    trades(local)
    local.write("day=b/3.parquet", {"id": [99], "day": ["b"], "extra": ["x"]})
    result = remove(local, "id IS NOT NULL", engine)
    assert counts(result) == (17, 1, 4)
    parquet = local.open(local.only_file())
    assert parquet.metadata.num_rows == 0
    assert {field.name: str(field.type) for field in parquet.schema_arrow} == {
        "id": "int64",
        "price": "double",
        "day": "string",
        "extra": "string",
    }
    assert remove(local, "id IS NOT NULL", engine).stats.rows_deleted == 0


def test_the_last_file_with_a_column_leaves_it_behind(local: Lake) -> None:
    local.write("a.parquet", {"id": [1], "only here": ["x"]})
    local.write("b.parquet", {"id": [2]})
    assert counts(remove(local, "id = 1")) == (1, 1, 0)
    assert local.column("id") == [2]
    assert {name for file in local.files() for name in local.open(file).schema_arrow.names} == {
        "id",
        "only here",
    }


def test_a_partition_vanishes_though_only_others_tell_the_schema(local: Lake) -> None:
    trades(local)
    result = remove(local, "id >= 0", partition_filter={"day": "a"})
    assert counts(result) == (8, 0, 2)
    assert {name.split("/")[0] for name in local.files()} == {"day=b"}


def test_nothing_matches_and_nothing_is_touched(local: Lake) -> None:
    before = trades(local)
    result = remove(local, "id = 99")
    assert counts(result) == (0, 0, 0)
    assert (result.stats.rows_before, result.stats.rows_after) == (16, 16)
    assert result.publish == "none"
    assert local.tree() == before


def test_a_dry_run_counts_exactly_and_touches_nothing(engine: str, local: Lake) -> None:
    before = trades(local)
    predicted = remove(local, "price = 1.0 OR day = 'b'", engine, dry_run=True).to_dict()
    assert local.tree() == before
    real = remove(local, "price = 1.0 OR day = 'b'", engine).to_dict()
    assert predicted == {**real, "dry_run": True}
    assert (real["rows_deleted"], real["files_deleted"], real["files_written"]) == (11, 2, 2)


def test_drifted_files_are_told_apart(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": pa.array([1, 2], pa.int16()), "v": [1, 2]})
    local.write("b.parquet", {"id": pa.array([1, 2**40], pa.int64())})
    local.write("c.parquet", {"v": [7, 8], "w": ["x", "y"]})
    assert remove(local, "id = 1", engine).stats.rows_deleted == 2
    assert remove(local, "v IS NULL AND id > 5", engine).stats.rows_deleted == 1
    assert remove(local, "w = 'x'", engine).stats.rows_deleted == 1
    found = {str(local.open(name).read().to_pylist()) for name in local.files()}
    assert found == {"[{'id': 2, 'v': 2}]", "[{'v': 8, 'w': 'y'}]", "[]"}
    types = {str(local.open(name).schema_arrow.field(0).type) for name in local.files()}
    assert types == {"int16", "int64"}  # the last file with wide ids leaves them behind


def test_a_column_that_cannot_be_merged_only_matters_where_it_is_used(local: Lake) -> None:
    local.write("a.parquet", {"id": [1, 2], "x": [1, 2]})
    local.write("b.parquet", {"id": [1, 2], "x": ["1", "2"]})
    assert remove(local, "id = 1").stats.rows_deleted == 2
    with pytest.raises(Exception, match=r"column 'x' is int64 in .* and string in"):
        remove(local, "x = 1")
    assert local.column("id") == [2, 2]


def test_schema_metadata_and_codec_are_kept(engine: str, local: Lake) -> None:
    fields = [
        pa.field("id", pa.int32(), nullable=False, metadata={b"PARQUET:field_id": b"7"}),
        pa.field("at", pa.timestamp("ms", "Europe/Berlin"), metadata={b"note": b"here"}),
        pa.field("tags", pa.list_(pa.struct([("k", pa.string())]))),
    ]
    schema = pa.schema(fields, {b"owner": b"me"})
    table = pa.table([[1, 2, 3], [1, None, 3], [[{"k": "x"}], None, []]], schema=schema)
    local.write("a.parquet", table, compression="gzip")
    expected = local.read().take([0, 2])
    remove(local, "id = 2", engine)
    assert_same_table(local.read(), expected)
    group = local.open(local.only_file()).metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"GZIP"}
    remove(local, "id = 3", engine, compression="zstd")
    assert local.open(local.only_file()).metadata.row_group(0).column(0).compression == "ZSTD"


def test_pandas_range_index_has_the_rows_that_are_left(local: Lake) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3]}).to_pandas()
    local.write("a.parquet", pa.Table.from_pandas(frame))
    remove(local, "id = 2")
    assert local.read().to_pandas().index.tolist() == [0, 1]


def test_a_path_that_contradicts_the_file_is_refused(local: Lake) -> None:
    local.write("day=a/1.parquet", {"id": [1, 2], "day": ["a", "b"]})
    before = local.tree()
    with pytest.raises(UnsupportedDatasetError, match=r"Column 'day' of .* holds 'b'.* path .*'a'"):
        remove(local, "day = 'a'")
    assert local.tree() == before
    assert remove(local, "id = 1").stats.rows_deleted == 1


def test_a_path_may_spell_a_number_in_another_way(local: Lake) -> None:
    local.write("month=01/1.parquet", {"id": [1, 2], "month": [1, 1]})
    assert remove(local, "month = 1 AND id = 2").stats.rows_deleted == 1
    local.write("month=02/1.parquet", {"id": [5], "month": [3]})
    with pytest.raises(UnsupportedDatasetError, match=r"'month' of .* holds 3.* path .*'02'"):
        remove(local, "month = 1")


def test_a_repeated_key_of_a_path_only_matters_where_it_is_used(local: Lake) -> None:
    local.write("a=1/a=2/1.parquet", {"id": [1, 2]})
    assert remove(local, "id = 1").stats.rows_deleted == 1
    with pytest.raises(UnsupportedDatasetError, match="has the partition key 'a' more than once"):
        remove(local, "a = '1'")


def test_timestamps_that_would_wrap_are_not_judged(local: Lake) -> None:
    """As nanoseconds, the first of these is in the year 1754: no file may go for that."""
    moments = pa.array([dt.datetime(2339, 1, 1), dt.datetime(2020, 1, 1)], pa.timestamp("us"))
    options = {"use_deprecated_int96_timestamps": True}
    local.write("a.parquet", pa.table({"id": [1, 2], "at": moments}), **options)
    before = local.tree()
    for where in ("at < TIMESTAMP '2021-01-01'", "at > TIMESTAMP '2000-01-01'"):
        with pytest.raises(RewriteError, match=r"column 'at' .* outside 1677"):
            remove(local, where)
    assert local.tree() == before


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nope = 1", r"Unknown column 'nope'\. Available columns: id, price, day"),
        ("id = ", "id = "),
        ("id = 1; DROP TABLE x", ";"),
        ("id = 'x'", "id"),
        (17, "predicate is SQL text"),
        ("id + 1", "condition"),
    ],
)
def test_wrong_conditions_are_refused(local: Lake, where: Any, message: str) -> None:
    before = trades(local)
    with pytest.raises(ValueError, match=message):
        remove(local, where)
    assert local.tree() == before


def test_broken_sql_is_refused_before_the_path_is_looked_at() -> None:
    with pytest.raises(ValueError, match="id = "):
        delete("/nowhere/at/all", "id = ")
    with pytest.raises(FileNotFoundError, match="Dataset path '/nowhere/at/all' does not exist"):
        delete("/nowhere/at/all", "id = 1")


def test_what_was_deleted_comes_back(lake: Lake, tmp_path: Path) -> None:
    before = trades(lake)
    backups = str(tmp_path / "backups")
    first = remove(lake, "day = 'a'", backup_path=backups)
    second = remove(lake, "price = 1.0", backup_path=backups)
    assert first.backup_id != second.backup_id
    options = dict(lake.storage_options) or None
    for result in (second, first):
        assert result.backup_id is not None
        assert result.to_dict()["backup_id"] == result.backup_id
        restore(lake.url, result.backup_id, backup_path=backups, storage_options=options)
    assert lake.tree() == before


def test_no_backup_is_made_of_nothing(local: Lake, tmp_path: Path) -> None:
    trades(local)
    backups = tmp_path / "backups"
    assert remove(local, "id = 99", backup_path=backups).backup_id is None
    assert remove(local, "id = 1", backup_path=backups, dry_run=True).backup_id is None
    assert not backups.exists()
    with pytest.raises(ValueError, match="one lies in"):
        remove(local, "id = 1", backup_path=f"{local.url}/backups")


def test_duckdb_deletes_by_itself_and_says_where_it_does_not(local: Lake) -> None:
    trades(local)
    assert remove(local, "id = 1 AND day = 'a'", "duckdb").engine_notes == ()
    (note,) = remove(local, pl.col("id") == 2, "duckdb").engine_notes
    assert note.startswith("PyArrow writes some groups: ")
    before = local.tree()
    with pytest.raises(Exception, match="strict"):
        remove(local, pl.col("id") == 3, "duckdb", strict=True)
    assert local.tree() == before


def test_a_small_memory_budget_changes_no_rows(engine: str, local: Lake) -> None:
    for part in range(3):
        start = 1000 * part
        local.write(f"{part}.parquet", {"id": list(range(start, start + 1000))})
    remove(local, "id % 2 = 0", engine, memory_budget_mb=0.01, max_workers=2)
    assert sorted(local.column("id")) == list(range(1, 3000, 2))
