"""Columns come, go, change their names and get wider, and no file is rewritten."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from maintenance_assets import Lakehouse, SchemaMismatchError
from maintenance_assets.api.lakehouse import LakeDataset


def people(house: Lakehouse, **columns: Any) -> LakeDataset:
    """A dataset with an id and a name."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), *columns.items()])
    dataset = house.create_dataset("people", schema)
    dataset.append({"id": [1, 2], "name": ["ann", "bob"]})
    return dataset


def rows(dataset: LakeDataset, **options: Any) -> list[dict[str, Any]]:
    """All rows by id."""
    return dataset.read(**options).sort_by("id").to_pylist()


def names_on_disk(dataset: LakeDataset) -> list[str]:
    """Names of files, in order."""
    return sorted(path.name for path in Path(dataset.path).rglob("*.parquet"))


def test_every_change_of_columns_leaves_files_alone(house: Lakehouse) -> None:
    dataset = people(house)
    before = names_on_disk(dataset)
    assert dataset.add_column("age", pa.int32()) == 2
    assert dataset.rename_column("name", "first name") == 3
    assert dataset.widen_column("age", pa.int64()) == 4
    assert dataset.drop_column("id") == 5
    assert dataset.schema() == pa.schema([("first name", pa.string()), ("age", pa.int64())])
    assert dataset.read().to_pylist() == [
        {"first name": "ann", "age": None},
        {"first name": "bob", "age": None},
    ]
    assert rows(dataset, version=1) == [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]
    assert dataset.schema(1).names == ["id", "name"]
    assert dataset.schema(2).field("age").type == pa.int32()
    assert names_on_disk(dataset) == before


def test_files_carry_field_ids(small: Lakehouse) -> None:
    dataset = people(small)
    dataset.rename_column("name", "first")
    dataset.append({"first": ["cid"], "id": [3], "extra": [1.5]})
    first, second = (Path(dataset.path) / file.path for file in dataset.files())
    assert field_ids(first) == {"id": 1, "name": 2}
    assert field_ids(second) == {"first": 2, "id": 1, "extra": 3}


def field_ids(path: Path) -> dict[str, int]:
    """Ids in a file by name."""
    return {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in pq.read_schema(path)}


def test_a_name_that_is_used_again_shows_no_old_values(small: Lakehouse) -> None:
    dataset = people(small)
    dataset.drop_column("name")
    dataset.add_column("name", pa.string())
    assert [row["name"] for row in rows(dataset)] == [None, None]
    assert dataset.read(where="name = 'ann'").num_rows == 0
    assert dataset.read(where="name IS NULL").num_rows == 2
    dataset.append({"id": [3], "name": ["new"]})
    assert [row["name"] for row in rows(dataset)] == [None, None, "new"]
    seen = dataset.to_duckdb().order("id").fetchall()
    assert seen == [(1, None), (2, None), (3, "new")]
    # Files in which the name means another column are not merged with the new ones.
    dataset.append({"id": [4], "name": ["newer"]})
    done = dataset.compact()
    assert done.to_dict()["after_file_count"] == 2
    assert [row["name"] for row in rows(dataset)] == [None, None, "new", "newer"]
    assert [row["name"] for row in rows(dataset, version=1)] == ["ann", "bob"]


def test_two_columns_can_swap_their_names(small: Lakehouse) -> None:
    dataset = small.create_dataset("pairs", data={"a": [1], "b": [2]})
    dataset.rename_column("a", "c")
    dataset.rename_column("b", "a")
    dataset.rename_column("c", "b")
    dataset.append({"a": [20], "b": [10]})
    assert dataset.read().to_pydict() == {"b": [1, 10], "a": [2, 20]}
    assert dataset.read(where="a = 2").to_pydict() == {"b": [1], "a": [2]}
    assert dataset.delete("b = 10").rows_deleted == 1
    assert dataset.update("a = 2", {"b": 5}).rows_updated == 1
    assert dataset.read().to_pydict() == {"b": [5], "a": [2]}


def test_new_columns_come_with_data_unless_merging_is_off(house: Lakehouse) -> None:
    dataset = people(house)
    with pytest.raises(SchemaMismatchError, match=r"'age' that the dataset does not have"):
        dataset.append({"id": [3], "name": ["cid"], "age": [30]}, merge_schema=False)
    assert (dataset.version, len(names_on_disk(dataset))) == (1, 1)
    dataset.append({"id": [3], "name": ["cid"], "age": [30]})
    dataset.append({"id": [4]})
    assert rows(dataset) == [
        {"id": 1, "name": "ann", "age": None},
        {"id": 2, "name": "bob", "age": None},
        {"id": 3, "name": "cid", "age": 30},
        {"id": 4, "name": None, "age": None},
    ]


def test_wider_data_widens_the_column_unless_merging_is_off(small: Lakehouse) -> None:
    dataset = people(small, n=pa.int32())
    data = {"id": [3], "name": ["c"], "n": pa.array([2**40])}
    with pytest.raises(SchemaMismatchError, match="could be widened to int64"):
        dataset.append(data, merge_schema=False)
    dataset.append(data)
    assert dataset.schema().field("n").type == pa.int64()
    assert [row["n"] for row in rows(dataset)] == [None, None, 2**40]
    dataset.append({"id": [4], "n": pa.array([7], pa.int8())})
    assert dataset.schema().field("n").type == pa.int64()
    assert dataset.read(where="n < 100").to_pylist() == [{"id": 4, "name": None, "n": 7}]


def test_a_mismatch_is_refused_or_becomes_text_with_a_warning(small: Lakehouse) -> None:
    dataset = small.create_dataset("codes", data={"id": [1, 2], "code": [7, None]})
    data = {"id": [3], "code": ["x7"]}
    with pytest.raises(SchemaMismatchError, match=r"'code' is int64 and the data brings string"):
        dataset.append(data)
    with pytest.warns(UserWarning, match="'code' is int64 and the data brings string"):
        result = dataset.append(data, on_mismatch="string")
    assert len(result.warnings) == 1
    assert dataset.schema().field("code").type == pa.string()
    assert [row["code"] for row in rows(dataset)] == ["7", None, "x7"]
    assert dataset.read(where="code = '7'").to_pydict() == {"id": [1], "code": ["7"]}
    assert dataset.read(where="code IS NULL").num_rows == 1
    assert dataset.to_arrow_dataset().to_table(filter=pc.field("code") == "7").num_rows == 1
    assert [row["code"] for row in rows(dataset, version=1)] == [7, None]
    with pytest.warns(UserWarning):
        dataset.append({"id": [4], "code": [dt.date(2025, 1, 2)]}, on_mismatch="string")
    assert rows(dataset)[3]["code"] == "2025-01-02"


def test_values_that_do_not_fit_are_refused_and_leave_nothing(small: Lakehouse) -> None:
    dataset = people(small, price=pa.float64())
    before = names_on_disk(dataset)
    with pytest.raises(SchemaMismatchError, match="'price'"):
        dataset.append({"id": [3], "price": [2**53 + 1]})
    with pytest.raises(SchemaMismatchError, match="differ at most in case"):
        dataset.append({"id": [3], "Name": ["x"]})
    with pytest.raises(SchemaMismatchError, match="type is unknown"):
        dataset.append({"id": [3], "nothing": pa.nulls(1)})
    with pytest.raises(SchemaMismatchError, match="list"):
        dataset.append({"id": [3], "name": [["x"]]}, on_mismatch="string")
    assert (dataset.version, names_on_disk(dataset)) == (1, before)
    assert small.fsck().problems == ()
    dataset.append({"id": [3], "price": [7]})
    assert rows(dataset)[2]["price"] == 7.0


def test_required_columns_stay_required(small: Lakehouse) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])
    dataset = small.create_dataset("strict", schema)
    with pytest.raises(SchemaMismatchError, match="lacks column 'id'"):
        dataset.append({"x": [1]})
    with pytest.raises(SchemaMismatchError, match="'id' must not be null"):
        dataset.append({"id": pa.array([None], pa.int64()), "x": [1]})
    dataset.append({"id": [1], "x": [None]})
    assert dataset.read().schema == schema
    with pytest.raises(SchemaMismatchError, match="cannot be required"):
        dataset.add_column("y", pa.field("y", pa.int64(), nullable=False))


def test_changes_that_would_lose_something_are_refused(small: Lakehouse) -> None:
    dataset = small.create_dataset(
        "d", pa.schema([("day", pa.string()), ("n", pa.int64())]), partition_by="day"
    )
    for change in (
        lambda: dataset.drop_column("day"),
        lambda: dataset.rename_column("day", "date"),
        lambda: dataset.widen_column("n", pa.int32()),
        lambda: dataset.widen_column("n", pa.float64()),
        lambda: dataset.add_column("N", pa.int64()),
        lambda: dataset.rename_column("n", "day"),
        lambda: dataset.append({"n": [1]}),
    ):
        with pytest.raises(SchemaMismatchError):
            change()
    for missing in (
        lambda: dataset.drop_column("x"),
        lambda: dataset.rename_column("x", "y"),
        lambda: dataset.read(columns=["x"]),
        lambda: dataset.read(where="x = 1"),
    ):
        with pytest.raises(ValueError, match="x"):
            missing()
    assert dataset.version == 0


@pytest.mark.parametrize("taken", ["n", "N", "price", "Price", "day"])
def test_a_name_that_another_column_has_is_refused(house: Lakehouse, taken: str) -> None:
    row = {"id": 1, "n": 2, "price": 3.5, "day": "a"}
    dataset = house.create_dataset("orders", data=[row], partition_by="day")
    changes: tuple[Callable[[], object], ...] = (
        lambda: dataset.add_column(taken, pa.int64()),
        lambda: dataset.rename_column("id", taken),
    )
    for change in changes:
        with pytest.raises(SchemaMismatchError, match=rf"dataset 'orders' .*'{taken}'"):
            change()
    assert (dataset.version, dataset.schema().names) == (1, list(row))
    assert dataset.read().to_pylist() == [row]


def test_a_column_is_renamed_to_another_case_but_not_to_its_own_name(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data={"n": [1], "name": ["x"]})
    for name in ("n", "name"):
        with pytest.raises(SchemaMismatchError, match=f"'{name}' of dataset 'd' is called so"):
            dataset.rename_column(name, name)
    assert dataset.version == 1
    assert dataset.rename_column("n", "N") == 2
    assert dataset.read().to_pydict() == {"N": [1], "name": ["x"]}


@pytest.mark.parametrize("name", ["n", "name"])
def test_two_columns_of_one_name_come_in_no_way(
    small: Lakehouse, tmp_path: Path, name: str
) -> None:
    twice = pa.table([[1], [2]], [name, name])
    root = tmp_path / "plain"
    root.mkdir()
    pq.write_table(twice, root / "a.parquet")
    whole = small.create_dataset("whole", {name: "int64"})
    parted = small.create_dataset("parted", {name: "int64", "x": "int64"}, partition_by=name)
    writes: tuple[Callable[[], object], ...] = (
        lambda: small.create_dataset("new", twice.schema),
        lambda: small.create_dataset("new", data=twice),
        lambda: small.register("new", root),
        lambda: whole.append(twice),
        lambda: whole.overwrite(twice),
        lambda: whole.upsert(twice, [name]),
        lambda: parted.append(twice),
    )
    for write in writes:
        with pytest.raises(SchemaMismatchError, match=f"would have two columns '{name}'"):
            write()
    assert small.datasets() == ("parted", "whole")
    assert (whole.version, parted.version, names_on_disk(whole)) == (0, 0, [])
    assert small.fsck().problems == ()


def test_nested_columns_get_new_members(small: Lakehouse) -> None:
    dataset = small.create_dataset("nested", data={"id": [1], "s": [{"a": 1}]})
    dataset.append([{"id": 2, "s": {"a": 2, "b": "x"}}])
    assert rows(dataset) == [
        {"id": 1, "s": {"a": 1, "b": None}},
        {"id": 2, "s": {"a": 2, "b": "x"}},
    ]
    assert dataset.compact().version == 3
    assert rows(dataset)[0] == {"id": 1, "s": {"a": 1, "b": None}}


def test_text_of_polars_and_pandas_fits_a_column_of_text(small: Lakehouse) -> None:
    import pandas as pd
    import polars as pl

    dataset = people(small)
    dataset.append(pl.DataFrame({"id": [3], "name": ["cid"]}))
    dataset.append(pl.LazyFrame({"id": [4], "name": ["dan"]}))
    dataset.append(pd.DataFrame({"id": [5], "name": pd.Categorical(["eve"])}))
    dataset.append(pa.table({"id": [6], "name": ["fay"]}).to_reader())
    dataset.append(pa.record_batch({"id": [7], "name": ["gus"]}))
    dataset.append([{"id": 8, "name": None}])
    dataset.append(pl.DataFrame({"id": [9], "name": ["hal"]}).lazy().collect())
    assert dataset.schema() == pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert [row["name"] for row in rows(dataset)][2:] == [
        "cid",
        "dan",
        "eve",
        "fay",
        "gus",
        None,
        "hal",
    ]
    with pytest.raises(ValueError, match="data must be"):
        dataset.append("people.csv")


def test_columns_of_adopted_files_that_the_dataset_lacks_stay_unseen(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = tmp_path / "wide"
    root.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"id": [number], "x": [100]}), root / f"{number}.parquet")
    dataset = small.register("wide", root, schema=pa.schema([("id", pa.int64())]))
    dataset.add_column("x", pa.int64())
    dataset.append({"id": [2], "x": [2]})
    dataset.append({"id": [3], "x": [3]})
    assert [row["x"] for row in rows(dataset)] == [None, None, 2, 3]
    assert dataset.compact().to_dict()["after_file_count"] == 2
    assert [row["x"] for row in rows(dataset)] == [None, None, 2, 3]
    assert dataset.read(where="x = 100").num_rows == 0


def test_rows_are_clustered_by_columns_under_their_names_of_today(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data={"id": [3, 1], "gone": [1, 2]})
    dataset.rename_column("id", "n")
    dataset.append({"n": [2, 0], "gone": [1, 2]})
    dataset.drop_column("gone")
    done = dataset.optimize(["n"])
    assert done.to_dict()["zorder_columns"] == ["n"]
    for file in dataset.files():
        values = pq.read_table(Path(dataset.path) / file.path).column(0).to_pylist()
        assert values == sorted(values)
    assert sorted(dataset.read().column("n").to_pylist()) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"Missing z-order columns: gone\. Available columns: n"):
        dataset.optimize(["gone"])


@pytest.mark.parametrize(
    ("given", "stored", "value"),
    [
        (pa.date64(), pa.date32(), dt.date(2025, 1, 2)),
        (pa.timestamp("s"), pa.timestamp("ms"), dt.datetime(2025, 1, 2)),
        (pa.time32("s"), pa.time32("ms"), dt.time(1, 2)),
        (pa.list_(pa.date64()), pa.list_(pa.date32()), [dt.date(2025, 1, 2)]),
    ],
)
def test_data_of_types_that_files_lack_comes_in_again_and_again(
    small: Lakehouse, given: Any, stored: Any, value: Any
) -> None:
    data = pa.table({"v": pa.array([value], given)})
    dataset = small.create_dataset("d", data=data)
    dataset.append(data)
    dataset.append({"v": pa.array([value], stored)})
    assert dataset.schema() == pa.schema([("v", stored)])
    assert dataset.compact().version == 4
    table = dataset.read()
    assert (table.schema, table.column("v").to_pylist()) == (dataset.schema(), [value] * 3)


def test_views_are_stored_as_the_values_that_they_show(small: Lakehouse) -> None:
    text = pa.array(["a", None], pa.string_view())
    dataset = small.create_dataset("views", pa.schema([("s", pa.string_view())]))
    dataset.append(pa.table({"s": text, "b": pa.array([b"x", None], pa.binary_view())}))
    assert dataset.schema() == pa.schema([("s", pa.string()), ("b", pa.binary())])
    assert dataset.read().to_pydict() == {"s": ["a", None], "b": [b"x", None]}
