"""Repartition: every row goes into the directory of its values, and nothing else changes."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import RepartitionResult, compact, repartition
from maintenance_assets.errors import (
    EngineUnavailableError,
    RewriteError,
    SchemaConflictError,
    UnsupportedDatasetError,
)
from maintenance_tests.datasets import Lake, assert_same_table

PART = r"part-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.parquet"


@pytest.fixture
def target(tmp_path: Path) -> Lake:
    """Where the rows go."""
    return Lake(str(tmp_path / "target"))


def move(source: Lake, target: Lake, columns: list[str], engine: str, **options: Any) -> Any:
    return repartition(source.url, target.url, columns, engine=engine, **options)


def write_days(lake: Lake) -> None:
    """Nine rows in three files, by day in the path; the day is in the path alone."""
    lake.write("day=01/a.parquet", {"id": [0, 1, 2], "shop": ["x", "y", "x"]})
    lake.write("day=01/b.parquet", {"id": [3, 4], "shop": ["z", "x"]})
    lake.write("day=02/a.parquet", {"id": [5, 6, 7, 8], "shop": ["x", "z", None, "y"]})


def directories(lake: Lake) -> list[str]:
    return sorted({name.rpartition("/")[0] for name in lake.files()})


def test_rows_go_to_the_directories_of_their_values(engine: str, local: Lake, target: Lake) -> None:
    write_days(local)
    result = move(local, target, ["shop"], engine)
    assert isinstance(result, RepartitionResult)
    null = "shop=__HIVE_DEFAULT_PARTITION__"
    assert directories(target) == [null, "shop=x", "shop=y", "shop=z"]
    assert target.column("id", "shop=x") == [0, 2, 4, 5]
    assert target.column("id", "shop=y") == [1, 8]
    assert target.column("id", "shop=z") == [3, 6]
    assert target.column("id", null) == [7]
    assert target.column("shop", null) == [None]
    assert all(re.fullmatch(PART, name.rpartition("/")[2]) for name in target.files())
    assert [name for name in target.tree() if name.startswith("_")] == []


def test_figures_are_those_of_the_work(engine: str, local: Lake, target: Lake) -> None:
    write_days(local)
    result = move(local, target, ["shop"], engine)
    assert result.to_dict() == {
        "partitions_created": 4,
        "files_read": 3,
        "files_written": 4,
        "rows_read": 9,
        "rows_written": 9,
        "bytes_before": local.total_bytes(),
        "bytes_after": target.total_bytes(),
        "errors": 0,
        "dry_run": False,
    }
    assert dict(result.partitions)["shop=x"] == 4
    assert (result.validated, result.source_deleted, result.engine) == (True, False, engine)


def test_what_only_the_path_says_becomes_text(engine: str, local: Lake, target: Lake) -> None:
    write_days(local)
    result = move(local, target, ["shop", "day"], engine)
    assert "shop=x/day=01" in directories(target)
    table = target.read("shop=x/day=02")
    assert table.schema.field("day").type == pa.string()
    assert table.to_pydict() == {"id": [5], "shop": ["x"], "day": ["02"]}
    assert "only in the paths" in result.notes[0]


def test_a_path_column_that_names_no_directory_any_more_is_kept(local: Lake, target: Lake) -> None:
    write_days(local)
    move(local, target, ["shop"], "pyarrow")
    assert target.column("day", "shop=x") == ["01", "01", "01", "02"]


def test_columns_are_left_out_of_files_where_only_the_path_is_to_have_them(
    engine: str, local: Lake, target: Lake
) -> None:
    write_days(local)
    move(local, target, ["shop", "day"], engine, keep_partition_columns=False)
    assert target.read("shop=x/day=01").to_pydict() == {"id": [0, 2, 4]}


def test_columns_are_derived_by_expressions(engine: str, local: Lake, target: Lake) -> None:
    moments = pa.array([0, 3_600, 90_000, None], pa.timestamp("s")).cast(pa.timestamp("us"))
    local.write("a.parquet", pa.table({"ts": moments, "v": [1, 2, 3, 4]}))
    derived = {"d": "cast(ts as date)", "h": "hour(ts)"}
    move(local, target, ["d", "h"], engine, derived=derived)
    null = "__HIVE_DEFAULT_PARTITION__"
    assert directories(target) == [
        "d=1970-01-01/h=0",
        "d=1970-01-01/h=1",
        "d=1970-01-02/h=1",
        f"d={null}/h={null}",
    ]
    assert target.column("v", "d=1970-01-02/h=1") == [3]
    assert target.column("h", "d=1970-01-01/h=1") == [1]


def test_old_directories_may_go_into_an_expression(local: Lake, target: Lake) -> None:
    write_days(local)
    move(local, target, ["n"], "pyarrow", derived={"n": "cast(day as integer) + 1"})
    assert directories(target) == ["n=2", "n=3"]
    assert target.column("id", "n=3") == [5, 6, 7, 8]


def test_no_partition_columns_put_all_rows_into_the_root(local: Lake, target: Lake) -> None:
    write_days(local)
    move(local, target, [], "pyarrow")
    assert target.column("id") == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert directories(target) == [""]


def test_the_row_bound_holds_in_every_directory(engine: str, local: Lake, target: Lake) -> None:
    for part in range(3):
        ids = list(range(part * 100, part * 100 + 100))
        local.write(f"part-{part}.parquet", {"id": ids, "k": [i % 2 for i in ids]})
    move(local, target, ["k"], engine, target_rows_per_file=60)
    counts = [target.open(name).metadata.num_rows for name in target.files("k=1")]
    assert counts == [60, 60, 30]
    assert target.column("id", "k=1") == list(range(1, 300, 2))


def test_the_codec_is_the_one_asked_for(local: Lake, target: Lake) -> None:
    write_days(local)
    move(local, target, ["shop"], "pyarrow", compression="gzip")
    metadata = target.open(target.only_file("shop=z")).metadata
    assert metadata.row_group(0).column(0).compression == "GZIP"


def test_metadata_of_fields_and_files_is_kept(engine: str, local: Lake, target: Lake) -> None:
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7", "unit": "m"}),
        pa.field("k", pa.dictionary(pa.int8(), pa.string())),
        pa.field("r", pa.large_string()),
    ]
    schema = pa.schema(fields, {"owner": "me"})
    coded: Any = pa.array(["a", "b", "a"]).dictionary_encode()
    indices = coded.indices.cast(pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, coded.dictionary)
    local.write("a.parquet", pa.table([[1, 2, 3], column, ["p", "q", "r"]], schema=schema))
    expected = local.read()
    move(local, target, ["k"], engine)
    found = target.read("k=a")
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.column("id").to_pylist() == [1, 3]


def test_a_pandas_range_index_counts_the_rows_of_each_file(local: Lake, target: Lake) -> None:
    frame = pa.table({"id": [0, 1, 2, 3, 4], "k": [0, 1, 0, 0, 1]}).to_pandas()
    table = pa.Table.from_pandas(frame)
    local.write("a.parquet", table)
    move(local, target, ["k"], "pyarrow")
    read = pq.read_table(f"{target.url}/{target.only_file('k=0')}", partitioning=None)
    assert list(read.to_pandas().index) == [0, 1, 2]


def test_drifted_files_are_merged(engine: str, local: Lake, target: Lake) -> None:
    local.write("a.parquet", pa.table({"k": pa.array([1], pa.int32()), "v": [1]}))
    local.write("b.parquet", pa.table({"v": [2], "k": pa.array([1], pa.int64()), "w": ["x"]}))
    result = move(local, target, ["k"], engine)
    assert target.read("k=1").to_pydict() == {"k": [1, 1], "v": [1, 2], "w": [None, "x"]}
    assert "column 'k': int32, int64 become int64" in result.notes


def test_drift_that_cannot_be_merged_is_refused_by_name(local: Lake, target: Lake) -> None:
    local.write("a.parquet", {"k": [1]})
    local.write("b.parquet", {"k": ["x"]})
    with pytest.raises(SchemaConflictError, match="'k'"):
        move(local, target, ["k"], "pyarrow")
    assert target.tree() == {}


def test_a_file_and_its_path_may_spell_a_value_differently(local: Lake, target: Lake) -> None:
    local.write("month=01/a.parquet", {"month": [1, 1], "v": [1, 2]})
    move(local, target, ["v", "month"], "pyarrow")
    assert directories(target) == ["v=1/month=1", "v=2/month=1"]


def test_a_file_that_contradicts_its_path_is_refused(
    engine: str, local: Lake, target: Lake
) -> None:
    local.write("month=01/a.parquet", {"month": [1, 2], "v": [1, 2]})
    with pytest.raises((UnsupportedDatasetError, RewriteError), match=r"'month'.*a\.parquet"):
        move(local, target, ["v"], engine)
    assert target.tree() == {}


def test_files_without_the_column_take_it_from_their_path(local: Lake, target: Lake) -> None:
    local.write("month=01/a.parquet", {"month": [1], "v": [1]})
    local.write("month=02/b.parquet", {"v": [2]})
    local.write("c.parquet", {"v": [3]})
    move(local, target, ["month"], "pyarrow")
    null = "month=__HIVE_DEFAULT_PARTITION__"
    assert directories(target) == ["month=1", "month=2", null]
    assert target.column("month", "month=2") == [2]


def test_the_old_tree_is_replaced_in_one_step(engine: str, local: Lake) -> None:
    write_days(local)
    before = local.tree()
    result = move(local, local, ["shop"], engine)
    assert directories(local) == [
        "shop=__HIVE_DEFAULT_PARTITION__",
        "shop=x",
        "shop=y",
        "shop=z",
    ]
    assert not before.keys() & local.tree().keys()
    assert sorted(local.column("id")) == list(range(9))
    assert result.publish == "exchange"


def test_repartition_again_brings_the_rows_back(local: Lake) -> None:
    write_days(local)
    move(local, local, ["shop"], "pyarrow")
    move(local, local, ["day"], "pyarrow", keep_partition_columns=False)
    assert local.column("id", "day=01") == [0, 2, 4, 1, 3]
    assert sorted(local.column("id", "day=02")) == [5, 6, 7, 8]


def test_compaction_finds_nothing_to_do_afterwards(local: Lake, target: Lake) -> None:
    for part in range(4):
        ids = list(range(part * 1000, part * 1000 + 1000))
        local.write(f"part-{part}.parquet", {"id": ids, "k": [i % 3 for i in ids]})
    move(local, target, ["k"], "pyarrow", target_rows_per_file=400)
    assert compact(target.url, target_rows_per_file=400, dry_run=True).plan.is_empty


def test_the_source_goes_last_when_it_is_to_go(local: Lake, target: Lake) -> None:
    write_days(local)
    result = move(local, target, ["shop"], "pyarrow", delete_source=True)
    assert result.source_deleted
    assert not Path(local.url).exists()
    assert sorted(target.column("id")) == list(range(9))


def test_other_files_of_the_source_stay(local: Lake, target: Lake) -> None:
    write_days(local)
    local.put("day=01/notes.txt", b"mine")
    move(local, target, ["shop"], "pyarrow", delete_source=True)
    assert list(local.tree()) == ["day=01/notes.txt"]


def test_a_dry_run_counts_and_writes_nothing(engine: str, local: Lake, target: Lake) -> None:
    write_days(local)
    before = local.tree()
    result = move(local, target, ["day", "shop"], engine, dry_run=True)
    assert dict(result.partitions) == {
        "day=01/shop=x": 3,
        "day=01/shop=y": 1,
        "day=01/shop=z": 1,
        "day=02/shop=x": 1,
        "day=02/shop=y": 1,
        "day=02/shop=z": 1,
        "day=02/shop=__HIVE_DEFAULT_PARTITION__": 1,
    }
    assert (result.stats.partitions_created, result.stats.files_written) == (7, 7)
    assert (result.stats.rows_read, result.stats.dry_run) == (9, True)
    assert local.tree() == before
    assert not Path(target.url).exists()


def test_rows_are_the_same_in_the_same_order_on_every_engine(
    engine: str, local: Lake, target: Lake
) -> None:
    table = pa.table({"id": list(range(5000)), "k": [i * 7 % 11 for i in range(5000)]})
    for part in range(5):
        local.write(f"part-{part}.parquet", table.slice(part * 1000, 1000), row_group_size=300)
    move(local, target, ["k"], engine, memory_budget_mb=1)
    for key in range(11):
        assert target.column("id", f"k={key}") == [i for i in range(5000) if i * 7 % 11 == key]


def test_a_source_without_rows_keeps_its_schema(engine: str, local: Lake, target: Lake) -> None:
    schema = pa.schema([("id", pa.int16()), ("k", pa.string())])
    local.write("a.parquet", schema.empty_table())
    result = move(local, target, ["k"], engine)
    assert target.read().schema.equals(schema)
    assert (result.stats.rows_written, result.stats.files_written) == (0, 1)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("shop", {}, "must be a list"),
        (["shop", ""], {}, "must be a list"),
        (["shop", "shop"], {}, "'shop' more than once"),
        (["shop"], {"compression": "lzma"}, "Unknown compression"),
        (["shop"], {"batch_rows": 0}, "batch_rows must be"),
        (["shop"], {"target_mb_per_file": 0}, "target_mb_per_file must be > 0"),
        (["shop"], {"engine": "sqlite"}, "Unknown engine"),
        (["shop"], {"transform_fn": 3}, "transform_fn must be callable"),
        (["n"], {"derived": {"n": "cast(shop"}}, "cast"),
        (["shop"], {"on_progress": 1}, "on_progress must be callable"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(
    columns: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        repartition("/nowhere/at/all", "/nowhere/else", columns, **options)


def test_missing_columns_are_named_with_those_that_there_are(local: Lake, target: Lake) -> None:
    write_days(local)
    with pytest.raises(
        ValueError,
        match=r"not found in data: hour, minute\. Available columns: id, shop, day",
    ):
        move(local, target, ["shop", "hour", "minute"], "pyarrow")
    assert not Path(target.url).exists()


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        repartition(tmp_path / "none", tmp_path / "target", ["k"])


def test_a_target_that_holds_something_is_refused(local: Lake, target: Lake) -> None:
    write_days(local)
    target.put("mine.txt", b"mine")
    with pytest.raises(FileExistsError, match=r"mine\.txt"):
        move(local, target, ["shop"], "pyarrow")
    assert list(target.tree()) == ["mine.txt"]


@pytest.mark.parametrize("inner", ["target", "source"])
def test_a_source_and_a_target_inside_each_other_are_refused(local: Lake, inner: str) -> None:
    write_days(local)
    below = local.below("below")
    source, target = (local, below) if inner == "target" else (below, local)
    with pytest.raises(ValueError, match="inside each other"):
        move(source, target, ["shop"], "pyarrow")


def test_derived_names_that_exist_are_refused(local: Lake, target: Lake) -> None:
    write_days(local)
    with pytest.raises(ValueError, match="'day' exists already"):
        move(local, target, ["day"], "pyarrow", derived={"day": "id"})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([[1]]), "'k'.*list"),
        (pa.array([1], pa.duration("s")), "'k'.*duration"),
        (pa.array([b"\xff"]), "'k'.*UTF-8"),
        (pa.array(["x" * 300]), "255"),
    ],
)
def test_values_without_a_directory_are_refused_by_name(
    local: Lake, target: Lake, array: Any, message: str
) -> None:
    local.write("a.parquet", pa.table({"k": array, "v": [1]}))
    with pytest.raises((ValueError, RewriteError), match=message):
        move(local, target, ["k"], "pyarrow")
    assert target.tree() == {}


def test_strict_duckdb_refuses_what_it_cannot_keep(local: Lake, target: Lake) -> None:
    coded: Any = pa.array(["a"]).dictionary_encode()
    local.write("a.parquet", pa.table({"k": [1], "c": coded}))
    with pytest.raises((RewriteError, EngineUnavailableError), match="'c'"):
        move(local, target, ["k"], "duckdb", strict=True)
    result = move(local, target, ["k"], "duckdb")
    assert result.engine == "pyarrow"
    assert "PyArrow writes" in result.engine_notes[0]
    assert_same_table(target.read("k=1"), local.read())
