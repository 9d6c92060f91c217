"""Rows whose key exists get new values, all others are inserted: each key once, wherever it is."""

import datetime as dt
import math
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets import ChangeResult, restore, upsert
from maintenance_assets.errors import UnsupportedDatasetError
from maintenance_tests.datasets import Lake

Row = dict[str, Any]


def merge(
    lake: Lake, data: Any, keys: list[str], engine: str = "pyarrow", **options: Any
) -> ChangeResult:
    """Upsert into a lake on any store."""
    storage_options = dict(lake.storage_options) or None
    return upsert(lake.url, data, keys, engine=engine, storage_options=storage_options, **options)


def trades(lake: Lake) -> dict[str, str]:
    """Two products on two days, in path and files; returns the hashes."""
    for product in ("BTC", "ETH"):
        for day in ("d1", "d2"):
            table = {
                "product": [product] * 2,
                "day": [day] * 2,
                "trade": [f"{day}-1", f"{day}-2"],
                "price": [1.0, 2.0],
                "size": [10, 20],
            }
            lake.write(f"product={product}/day={day}/1.parquet", table)
    return lake.tree()


def read(lake: Lake) -> list[Row]:
    """All rows, in the order of their text."""
    found = [row for name in lake.files() for row in lake.open(name).read().to_pylist()]
    return sorted(found, key=repr)


def counts(result: ChangeResult) -> tuple[int, int, int]:
    """Rows inserted, updated and deleted."""
    stats = result.stats
    return stats.rows_inserted, stats.rows_updated, stats.rows_deleted


def test_known_keys_are_updated_and_others_inserted(engine: str, lake: Lake) -> None:
    before = trades(lake)
    new = pa.table(
        {
            "product": ["BTC", "BTC", "XRP"],
            "day": ["d1", "d1", "d9"],
            "trade": ["d1-2", "d1-3", "d9-1"],
            "price": [5.0, 6.0, None],
        }
    )
    result = merge(lake, new, ["product", "trade"], engine)
    assert read(lake.below("product=BTC/day=d1")) == [
        {"product": "BTC", "day": "d1", "trade": "d1-1", "price": 1.0, "size": 10},
        {"product": "BTC", "day": "d1", "trade": "d1-2", "price": 5.0, "size": 20},
        {"product": "BTC", "day": "d1", "trade": "d1-3", "price": 6.0, "size": None},
    ]
    assert read(lake.below("product=XRP/day=d9")) == [
        {"product": "XRP", "day": "d9", "trade": "d9-1", "price": None, "size": None}
    ]
    after = lake.tree()
    assert {name for name in before if name not in after} == {"product=BTC/day=d1/1.parquet"}
    assert result.to_dict() == {
        "partitions_affected": 2,
        "files_read": 1,
        "files_written": 3,
        "files_deleted": 0,
        "rows_before": 8,
        "rows_after": 10,
        "rows_deleted": 0,
        "rows_updated": 1,
        "rows_inserted": 2,
        "dry_run": False,
    }
    assert all(name.endswith(".parquet") for name in after)


def test_a_dry_run_counts_exactly_and_touches_nothing(engine: str, local: Lake) -> None:
    before = trades(local)
    new = {"product": ["BTC", "NEW"], "trade": ["d1-1", "x"], "day": ["d2", "d2"], "n": [1, 2]}
    predicted = merge(local, new, ["product", "trade"], engine, dry_run=True).to_dict()
    assert local.tree() == before
    real = merge(local, new, ["product", "trade"], engine).to_dict()
    assert predicted == {**real, "dry_run": True}


SOURCES: dict[str, Any] = {
    "polars": pl.DataFrame({"id": [1, 3], "v": ["x", "z"]}),
    "pyarrow": pa.table({"id": [1, 3], "v": ["x", "z"]}),
    "batch": pa.record_batch({"id": [1, 3], "v": ["x", "z"]}),
    "pandas": pd.DataFrame({"id": [0, 1, 3], "v": ["", "x", "z"]}).query("id > 0"),
    "pandas with a named index": pd.DataFrame({"v": ["x", "z"]}, pd.Index([1, 3], name="id")),
    "dict": {"id": [1, 3], "v": ["x", "z"]},
}


@pytest.mark.parametrize("kind", [*SOURCES, "reader"])
def test_new_data_of_all_kinds(local: Lake, kind: str) -> None:
    local.write("a.parquet", {"id": [1, 2], "v": ["a", "b"]})
    data = SOURCES[kind] if kind != "reader" else SOURCES["pyarrow"].to_reader()
    assert counts(merge(local, data, ["id"])) == (1, 1, 0)
    assert read(local) == [{"id": 1, "v": "x"}, {"id": 2, "v": "b"}, {"id": 3, "v": "z"}]
    schemas = {str(local.open(name).schema_arrow.remove_metadata()) for name in local.files()}
    assert schemas == {"id: int64\nv: string"}


def test_columns_that_the_new_data_does_not_have_stay(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": [1, 2], "v": ["a", "b"], "w": [1, 2]})
    merge(local, {"id": [2, 3], "v": [None, "c"]}, ["id"], engine)
    assert read(local) == [
        {"id": 1, "v": "a", "w": 1},
        {"id": 2, "v": None, "w": 2},
        {"id": 3, "v": "c", "w": None},
    ]


def test_update_cols_bound_what_is_updated_but_not_what_is_inserted(
    engine: str, local: Lake
) -> None:
    local.write("a.parquet", {"id": [1], "v": ["a"], "w": [1]})
    new = {"id": [1, 2], "v": ["x", "y"], "w": [8, 9]}
    assert counts(merge(local, new, ["id"], engine, update_cols=["w"])) == (1, 1, 0)
    assert read(local) == [{"id": 1, "v": "a", "w": 8}, {"id": 2, "v": "y", "w": 9}]


def test_without_columns_to_update_only_new_keys_count(local: Lake) -> None:
    local.write("a.parquet", {"id": [1], "v": ["a"]})
    before = local.tree()
    new = {"id": [1, 2], "v": ["x", "y"]}
    assert counts(merge(local, new, ["id"], update_cols=[])) == (1, 0, 0)
    assert local.tree()["a.parquet"] == before["a.parquet"]
    assert counts(merge(local, {"id": [1, 2]}, ["id"])) == (0, 0, 0)


def test_keys_are_equal_by_value(engine: str, local: Lake) -> None:
    keys = {"f": [math.nan, -0.0, None, 1.0, math.nan], "s": ["a", "a", None, None, None]}
    local.write("a.parquet", {**keys, "v": [1, 2, 3, 4, 5]})
    new = {"f": [math.nan, 0.0, None, None], "s": ["a", "a", None, "a"], "v": [10, 20, 30, 40]}
    assert counts(merge(local, new, ["f", "s"], engine)) == (1, 3, 0)
    assert sorted(local.column("v")) == [4, 5, 10, 20, 30, 40]


def test_keys_of_many_types_are_found_in_drifted_files(local: Lake) -> None:
    day = dt.date(2025, 1, 1)
    narrow = pa.table(
        {"k": pa.array([1], pa.int8()), "d": pa.array([day]), "c": pa.array(["x"]), "v": [1]}
    )
    wide = pa.table(
        {
            "k": pa.array([1, 2**40], pa.int64()),
            "d": pa.array([day, None], pa.date32()),
            "c": pa.array(["y", "x"], pa.large_string()),
            "v": [2, 3],
        }
    )
    local.write("a.parquet", narrow)
    local.write("b.parquet", wide)
    new = pa.table(
        {
            "k": pa.array([1, 2**40, 1], pa.uint64()),
            "d": pa.array([day, None, day], pa.date64()),
            "c": pa.array(["x", "x", "z"]).dictionary_encode(),
            "v": pa.array([10, 30, 40], pa.int16()),
        }
    )
    assert counts(merge(local, new, ["k", "d", "c"])) == (1, 2, 0)
    assert sorted(local.column("v")) == [2, 10, 30, 40]


def test_the_same_key_twice_is_refused_by_name(local: Lake) -> None:
    local.write("a.parquet", {"id": [1], "s": ["x"], "v": [0]})
    before = local.tree()
    new = {"id": [1, 2, 1], "s": ["x", "x", "x"], "v": [1, 2, 3]}
    with pytest.raises(ValueError, match=r"key id=1, s='x' more than once \(rows 0 and 2\)"):
        merge(local, new, ["id", "s"])
    assert local.tree() == before
    assert counts(merge(local, new, ["id", "s"], on_duplicates="last")) == (1, 1, 0)
    assert sorted(local.column("v")) == [2, 3]


def test_a_key_that_moves_leaves_one_copy(engine: str, local: Lake) -> None:
    trades(local)
    new = {
        "product": ["BTC", "BTC"],
        "trade": ["d1-1", "d1-2"],
        "day": ["d2", "d1"],
        "size": [7, 8],
    }
    result = merge(local, new, ["product", "trade"], engine)
    assert counts(result) == (0, 2, 0)
    rows = [row for row in read(local) if row["product"] == "BTC"]
    assert [(row["trade"], row["day"], row["size"], row["price"]) for row in rows] == [
        ("d1-2", "d1", 8, 2.0),
        ("d1-1", "d2", 7, 1.0),
        ("d2-1", "d2", 10, 1.0),
        ("d2-2", "d2", 20, 2.0),
    ]
    assert local.column("trade", "product=BTC/day=d1") == ["d1-2"]
    assert sorted(local.column("trade", "product=BTC/day=d2")) == ["d1-1", "d2-1", "d2-2"]


def test_a_partition_column_outside_of_update_cols_moves_nothing(local: Lake) -> None:
    trades(local)
    new = {"product": ["BTC"], "trade": ["d1-1"], "day": ["d2"], "size": [7]}
    merge(local, new, ["product", "trade"], update_cols=["size"])
    assert local.column("size", "product=BTC/day=d1") == [7, 20]


def test_partitions_of_the_path_alone(engine: str, local: Lake) -> None:
    for month in ("01", "02"):
        local.write(f"month={month}/1.parquet", {"id": [1, 2], "v": [0, 0]})
    new = {"id": [1, 2, 5, 6], "month": ["01", "1", "02", None], "v": [1, 2, 5, 6]}
    assert counts(merge(local, new, ["id", "month"], engine)) == (3, 1, 0)
    places = {name.split("/")[0]: None for name in local.files()}
    assert {place: sorted(local.column("v", place)) for place in places} == {
        "month=01": [0, 1],
        "month=02": [0, 0, 5],
        "month=1": [2],
        "month=__HIVE_DEFAULT_PARTITION__": [6],
    }
    assert {n for f in local.files() for n in local.open(f).schema_arrow.names} == {"id", "v"}
    with pytest.raises(ValueError, match=r"'month' is only in the paths .* Cast it to text"):
        merge(local, {"id": [1], "month": [1]}, ["id"], engine)


def test_a_file_outside_of_the_partitions_holds_their_column_itself(
    engine: str, local: Lake
) -> None:
    local.write("1.parquet", {"id": [1, 2]})
    local.write("month=01/1.parquet", {"id": [3]})
    assert counts(merge(local, {"id": [1], "month": ["02"]}, ["id"], engine)) == (0, 1, 0)
    held = [local.open(name).read().to_pydict() for name in local.files() if "/" not in name]
    assert held == [{"id": [1, 2], "month": ["02", None]}]
    assert local.read("month=01").to_pydict() == {"id": [3]}


def test_new_rows_go_to_directories_as_they_are_spelled(local: Lake) -> None:
    local.write("month=01/1.parquet", {"id": [1], "month": [1]})
    merge(local, {"id": [2, 3], "month": [1, 12]}, ["id"])
    assert {name.split("/")[0] for name in local.files()} == {"month=01", "month=12"}


def test_repeated_rows_of_the_dataset_are_all_updated(engine: str, local: Lake) -> None:
    for part in range(2):
        local.write(f"{part}.parquet", {"id": [1, 2, 1], "v": [0, 0, 0], "w": [1, 2, 3]})
    assert counts(merge(local, {"id": [1], "v": [9]}, ["id"], engine)) == (0, 4, 0)
    assert local.column("v") == [9, 0, 9, 9, 0, 9]


def test_complete_new_data_replaces_repeated_rows_by_one(engine: str, local: Lake) -> None:
    trades(local)
    for name in ("day=d1/2", "day=d2/3"):
        table = {"product": ["BTC"] * 3, "day": [name[4:6]] * 3, "trade": ["d1-1", "d1-1", "x"]}
        local.write(f"product=BTC/{name}.parquet", {**table, "price": [3.0] * 3, "size": [1] * 3})
    before = read(local)
    frame = pl.DataFrame(before).unique(["product", "trade"], keep="first", maintain_order=True)
    result = merge(local, frame, ["product", "trade"], engine)
    assert counts(result) == (0, 9, 5)
    assert read(local) == sorted(frame.to_dicts(), key=repr)
    assert result.stats.rows_after == len(read(local)) == 9


def test_one_copy_is_left_in_the_directory_that_it_belongs_to(engine: str, local: Lake) -> None:
    for day in ("a", "b", "c"):
        local.write(f"day={day}/1.parquet", {"id": [1, 2, 1], "day": [day] * 3})
    result = merge(local, {"id": [1], "day": ["b"]}, ["id"], engine)
    assert counts(result) == (0, 1, 5)
    assert [local.column("id", f"day={day}") for day in ("a", "b", "c")] == [[2], [1, 2], [2]]
    result = merge(local, {"id": [2], "day": ["z"]}, ["id"], engine)
    assert counts(result) == (0, 1, 2)
    assert {name.split("/")[0] for name in local.files()} == {"day=b", "day=z"}


def test_a_new_directory_becomes_a_dataset(engine: str, lake: Lake) -> None:
    new = pl.DataFrame({"id": [1, 2, 3], "day": ["a", "b", None], "n": [[1], [], None]})
    result = merge(lake, new, ["id"], engine, partition_cols=["day"])
    assert counts(result) == (3, 0, 0)
    places = ["day=__HIVE_DEFAULT_PARTITION__", "day=a", "day=b"]
    assert sorted(name.split("/")[0] for name in lake.tree()) == places
    parquet = lake.open(lake.only_file("day=a"))
    assert parquet.read().to_pylist() == [{"id": 1, "day": "a", "n": [1]}]
    assert parquet.metadata.row_group(0).column(0).compression == "ZSTD"
    assert counts(merge(lake, new, ["id"], engine, partition_cols=["day"])) == (0, 3, 0)
    assert len(read(lake)) == 3


def test_a_dry_run_makes_no_directory(tmp_path: Path) -> None:
    result = upsert(tmp_path / "new", {"id": [1]}, ["id"], dry_run=True)
    assert counts(result) == (1, 0, 0)
    assert not (tmp_path / "new").exists()
    upsert(tmp_path / "new", {"id": [1]}, ["id"])
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".parquet"]


def test_no_dataset_is_made_inside_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    with pytest.raises(UnsupportedDatasetError, match="a Delta table"):
        upsert(tmp_path / "table" / "new", {"id": [1]}, ["id"])
    assert not (tmp_path / "table" / "new").exists()


def test_nothing_is_left_of_a_dataset_that_did_not_come_to_be(tmp_path: Path) -> None:
    def cancel(step: Any) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        upsert(tmp_path / "new", {"id": [1]}, ["id"], on_progress=cancel)
    new = pa.table({"id": pa.array([[1]], pa.list_(pa.int64()))})
    with pytest.raises(ValueError, match="cannot be compared"):
        upsert(tmp_path / "new", new, ["id"])
    assert not (tmp_path / "new").exists()


def test_new_columns_are_added(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": [1, 2]})
    local.write("b.parquet", {"id": [5]})
    before = local.tree()
    result = merge(local, {"id": [2, 3], "text": ["x", None], "n": [1, 2]}, ["id"], engine)
    assert counts(result) == (1, 1, 0)
    assert local.tree()["b.parquet"] == before["b.parquet"]
    found = [{"id": None, "text": None, "n": None, **row} for row in read(local)]
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "text": None, "n": None},
        {"id": 2, "text": "x", "n": 1},
        {"id": 3, "text": None, "n": 2},
        {"id": 5, "text": None, "n": None},
    ]


NO_SUCH_TYPE: list[tuple[Any, Any, Any]] = [
    (pa.array([dt.datetime(2025, 1, 1)], pa.timestamp("s")), pa.timestamp("ms"), None),
    (pa.array([dt.date(2025, 1, 1)], pa.date64()), pa.date32(), None),
    (pa.array([dt.time(1, 2)], pa.time32("s")), pa.time32("ms"), None),
    (pa.array([7]).dictionary_encode(), pa.int64(), None),
    (
        pl.Series(["x"], dtype=pl.Categorical).to_arrow(),
        pa.dictionary(pa.uint32(), pa.string()),
        None,
    ),
    (
        pl.Series(["x"], dtype=pl.Enum(["y", "x"])).to_arrow(),
        pa.dictionary(pa.uint8(), pa.string(), ordered=True),
        pa.string(),
    ),
    (pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([7])), pa.int64(), None),
]


@pytest.mark.parametrize(
    ("values", "made", "added"),
    NO_SUCH_TYPE,
    ids=[str(values.type) for values, _, _ in NO_SUCH_TYPE],
)
def test_new_columns_get_a_type_that_is_read_back(
    local: Lake, values: Any, made: Any, added: Any
) -> None:
    new = pa.table({"id": pa.array([1]), "x": values})
    merge(local, new, ["id"])
    assert local.read().schema.field("x").type == made
    assert [repr(row["x"]) for row in read(local)] == [repr(values.to_pylist()[0])]
    other = local.below("other")
    other.write("a.parquet", {"id": [1, 2]})
    merge(other, new, ["id"])
    assert other.read().schema.field("x").type == (added or made)
    assert [repr(row["x"]) for row in read(other)] == [repr(values.to_pylist()[0]), "None"]


def test_a_column_of_nothing_but_null_takes_the_type_of_its_first_values(
    engine: str, local: Lake
) -> None:
    local.write("a.parquet", {"id": [1, 2], "x": pa.nulls(2)})
    assert counts(merge(local, {"id": [2, 3], "x": ["b", "c"]}, ["id"], engine)) == (1, 1, 0)
    assert [row["x"] for row in read(local)] == [None, "b", "c"]
    assert {local.open(name).schema_arrow.field("x").type for name in local.files()} == {
        pa.string()
    }
    local.write("other/a.parquet", {"id": [1], "x": pa.nulls(1)})
    other = local.below("other")
    assert counts(merge(other, {"id": [5], "x": [7]}, ["x"], engine)) == (1, 0, 0)
    assert sorted(other.column("x"), key=repr) == [7, None]
    assert counts(merge(other, {"id": [6], "x": pa.nulls(1)}, ["x"], engine)) == (0, 1, 0)
    assert sorted(other.column("id")) == [5, 6]


def test_new_columns_of_types_that_parquet_lacks_are_refused_by_name(local: Lake) -> None:
    odd = {
        "x": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        "y": pa.array([{}], pa.struct([])),
    }
    for name, values in odd.items():
        with pytest.raises(ValueError, match=f"Column '{name}' .* which Parquet cannot hold"):
            merge(local, pa.table({"id": pa.array([1]), name: values}), ["id"])
    with pytest.raises(ValueError, match=r"Column 'x' .* would lose data"):
        merge(local, pa.table({"id": [1], "x": pa.array([1]).cast(pa.date64())}), ["id"])
    assert not Path(local.url).exists()


def test_values_have_to_fit_the_types_of_the_dataset(engine: str, local: Lake) -> None:
    schema = pa.schema([("id", pa.int32()), ("f", pa.float32()), ("t", pa.timestamp("ms", "UTC"))])
    local.write("a.parquet", pa.table([[1], [0.5], [0]], schema=schema))
    before = local.tree()
    refused: list[tuple[Row, str]] = [
        ({"id": [2**40]}, "id"),
        ({"id": [1], "f": [0.1]}, "f"),
        ({"id": [1], "f": ["0.5"]}, "f"),
        ({"id": [1], "t": [dt.datetime(2025, 1, 1)]}, "t"),
        ({"id": [1], "new": [None]}, "new"),
    ]
    for new, column in refused:
        with pytest.raises(ValueError, match=f"Column '{column}' of the new data"):
            merge(local, new, ["id"], engine)
    assert local.tree() == before
    moment = dt.datetime(2025, 1, 1, 0, 0, 0, 1000, dt.UTC)
    merge(local, {"id": [1, 2], "f": [0.25, None], "t": [moment, None]}, ["id"], engine)
    assert {str(local.open(name).schema_arrow) for name in local.files()} == {str(schema)}
    assert sorted(local.column("f"), key=str) == [0.25, None]


def test_required_columns_are_not_left_empty(engine: str, local: Lake) -> None:
    fields = [("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)]
    local.write("a.parquet", pa.table([[1], [1]], schema=pa.schema(fields)))
    before = local.tree()
    with pytest.raises(ValueError, match="'v' is required in the dataset, and NULL in 1 row"):
        merge(local, {"id": [1], "v": pa.array([None], pa.int64())}, ["id"], engine)
    with pytest.raises(ValueError, match="'v' is required in the dataset and missing"):
        merge(local, {"id": [7]}, ["id"], engine)
    assert local.tree() == before
    merge(local, {"id": [1, 2], "v": [5, 6]}, ["id"], engine)
    assert all(not local.open(f).schema_arrow.field("v").nullable for f in local.files())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_cols": []}, "at least one column"),
        ({"key_cols": "id"}, "list of column names"),
        ({"key_cols": ["nope"]}, r"Key columns not found in data: nope\. Available columns: id, v"),
        ({"key_cols": ["id", "id"]}, "more than once"),
        ({"update_cols": ["nope"]}, "Update columns not found in data: nope"),
        ({"update_cols": ["id"]}, "names the key column 'id'"),
        ({"partition_cols": ["year"]}, "Partition columns not found in data: year"),
        ({"partition_cols": ["v"]}, r"partition_cols \['v'\] contradict .* are: day"),
        ({"on_duplicates": "first"}, "'error' or 'last'"),
        ({"new_data": [1, 2]}, "Arrow C stream"),
        ({"new_data": pl.LazyFrame({"id": [1]})}, r"collect\(\) it first"),
        ({"new_data": {"id": [1], "ID": [2]}}, "'id' and 'ID'"),
        ({"new_data": pa.table([[1], [2], [3]], ["id", "v", "v"])}, "'v' and 'v'"),
        ({"new_data": {"id": [1], "V": [2], "day": ["a"]}}, "'V' would differ from column 'v'"),
        ({"new_data": {"id": [77], "v": [2]}}, "Partition columns not found in data: day"),
        ({"new_data": {"x": [1]}, "key_cols": ["x"]}, "Unknown key column 'x'"),
        ({"new_data": {"id": [[1]]}}, "Column 'id' of the new data"),
        ({"new_data": {"id": [7], "day": ["b"]}, "partition_filter": "day=a"}, "outside of"),
    ],
)
def test_wrong_arguments_are_refused(local: Lake, options: Row, message: str) -> None:
    local.write("day=a/1.parquet", {"id": [1], "v": [1], "day": ["a"]})
    before = local.tree()
    given: Row = {"new_data": {"id": [1], "v": [1]}, "key_cols": ["id"], **options}
    with pytest.raises(ValueError, match=message):
        upsert(local.url, **given)
    assert local.tree() == before


def test_a_list_cannot_be_a_key(local: Lake) -> None:
    local.write("a.parquet", {"id": [[1]], "v": [1]})
    with pytest.raises(ValueError, match=r"Key column 'id' has type .*list"):
        merge(local, {"id": [[1]], "v": [1]}, ["id"])


def test_new_rows_need_one_layout(local: Lake) -> None:
    local.write("a=1/1.parquet", {"id": [1]})
    local.write("b=1/1.parquet", {"id": [2]})
    before = local.tree()
    new = {"id": [3], "a": ["1"], "b": ["1"]}
    with pytest.raises(ValueError, match="'a=1' and 'b=1' have different partition columns"):
        merge(local, new, ["id"])
    assert local.tree() == before
    assert counts(merge(local, {"id": [1, 2], "v": [5, 6]}, ["id"])) == (0, 2, 0)


def test_a_key_that_contradicts_its_path_is_refused(local: Lake) -> None:
    local.write("day=a/1.parquet", {"id": [1], "day": ["x"]})
    with pytest.raises(UnsupportedDatasetError, match=r"'day' of .* holds 'x'"):
        merge(local, {"id": [1], "day": ["a"]}, ["id", "day"])


def test_an_upsert_of_no_rows_does_nothing(local: Lake) -> None:
    before = trades(local)
    nothing = pa.table({"trade": pa.array([], pa.string()), "size": pa.array([], pa.int64())})
    assert counts(merge(local, nothing, ["trade"])) == (0, 0, 0)
    assert local.tree() == before


def test_an_upsert_is_taken_back_as_a_whole(lake: Lake, tmp_path: Path) -> None:
    before = trades(lake)
    backups = str(tmp_path / "backups")
    new = {"product": ["BTC", "NEW"], "trade": ["d1-1", "x"], "day": ["d2", "d2"], "n": [1, 2]}
    result = merge(lake, new, ["product", "trade"], backup_path=backups)
    assert result.backup_id is not None
    options = dict(lake.storage_options) or None
    restore(lake.url, result.backup_id, backup_path=backups, storage_options=options)
    assert lake.tree() == before


def test_many_keys_of_text(engine: str, local: Lake) -> None:
    for part in range(2):
        keys = [f"key-{part}-{number:06}" for number in range(40_000)]
        local.write(f"{part}.parquet", {"key": keys, "v": [0] * len(keys)})
    new = [f"key-{n % 3}-{n:06}" for n in range(60_000)]
    result = merge(local, {"key": new, "v": list(range(60_000))}, ["key"], engine)
    known = {f"key-{part}-{number:06}" for part in range(2) for number in range(40_000)}
    updated = sum(key in known for key in new)
    assert counts(result) == (60_000 - updated, updated, 0)
    pairs = dict(zip(local.column("key"), local.column("v"), strict=True))
    assert len(pairs) == 80_000 + 60_000 - updated
    assert all(pairs[key] == n for n, key in enumerate(new))
