"""Rows are merged by their keys, and laid out anew; each as one version."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintenance_assets import Lakehouse, SchemaMismatchError
from maintenance_assets.api.lakehouse import LakeDataset

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("price", pa.float64())])


@pytest.fixture
def stock(small: Lakehouse) -> LakeDataset:
    """Four rows on two days, in three files."""
    dataset = small.create_dataset("stock", SCHEMA, partition_by=["day"])
    dataset.append({"id": [1, 2], "day": ["a", "a"], "price": [1.0, 2.0]})
    dataset.append({"id": [3, None], "day": ["b", "a"], "price": [3.0, None]})
    return dataset


def rows(dataset: LakeDataset) -> list[tuple[Any, ...]]:
    """All rows, in order."""
    return sorted((tuple(row.values()) for row in dataset.read().to_pylist()), key=repr)


def test_known_keys_get_new_values_and_others_are_inserted(house: Lakehouse) -> None:
    dataset = house.create_dataset("d", SCHEMA, partition_by=["day"])
    dataset.append({"id": [1, 2], "day": ["a", "b"], "price": [1.0, 2.0]})
    data = {"id": [2, 3], "day": ["b", "c"], "price": [None, 30.0]}
    dry = dataset.upsert(data, ["id"], dry_run=True)
    assert (dry.version, dry.rows_updated, dry.rows_inserted) == (None, 1, 1)
    done = dataset.upsert(data, ["id"])
    assert (done.version, done.rows_updated, done.rows_inserted) == (2, 1, 1)
    assert rows(dataset) == [(1, "a", 1.0), (2, "b", None), (3, "c", 30.0)]
    assert house.fsck().problems == ()


def test_null_is_a_key_and_some_columns_may_stay(stock: LakeDataset) -> None:
    data = pa.table({"id": pa.array([None, 1], pa.int64()), "price": [7, 8]})
    done = stock.upsert(data, "id", update_cols="price")
    assert (done.rows_updated, done.rows_inserted) == (2, 0)
    assert rows(stock) == [(1, "a", 8.0), (2, "a", 2.0), (3, "b", 3.0), (None, "a", 7.0)]


def test_a_new_partition_value_moves_the_row(stock: LakeDataset) -> None:
    stock.upsert({"id": [3], "day": ["z"]}, ["id"])
    assert rows(stock)[2] == (3, "z", 3.0)
    assert {f.partition for f in stock.files()} == {(("day", "a"),), (("day", "z"),)}


def test_files_without_these_keys_are_not_opened(stock: LakeDataset) -> None:
    for file in stock.files():
        if file.partition == (("day", "a"),):
            (Path(stock.path) / file.path).write_bytes(b"no longer Parquet")
    assert stock.upsert({"id": [3], "price": [9.0]}, ["id"]).rows_updated == 1


def test_new_columns_and_wider_types_come_with_the_rows(stock: LakeDataset) -> None:
    stock.upsert({"id": [1, 9], "day": ["a", "c"], "note": ["x", "y"]}, ["id"])
    table = stock.read(["id", "note"], where="note IS NOT NULL").sort_by("id")
    assert table.to_pydict() == {"id": [1, 9], "note": ["x", "y"]}
    with pytest.raises(SchemaMismatchError, match="does not have"):
        stock.upsert({"id": [1], "other": [1]}, ["id"], merge_schema=False)


def test_keys_that_are_there_twice_are_refused_unless_the_last_one_counts(
    stock: LakeDataset,
) -> None:
    data = {"id": [1, 1], "price": [5.0, 6.0]}
    with pytest.raises(ValueError, match="Rows 0 and 1 of the data have the same key"):
        stock.upsert(data, ["id"])
    stock.upsert(data, ["id"], on_duplicates="last")
    assert rows(stock)[0] == (1, "a", 6.0)


def test_requests_that_make_no_sense_are_refused(stock: LakeDataset) -> None:
    wrong: list[dict[str, Any]] = [
        {"key_cols": []},
        {"key_cols": ["x"]},
        {"key_cols": ["id"], "update_cols": ["x"]},
        {"key_cols": ["id"], "update_cols": ["id"]},
        {"key_cols": ["id"], "on_duplicates": "first"},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"key|found|on_duplicates"):
            stock.upsert({"id": [1], "price": [1.0]}, **arguments)
    assert stock.version == 2


def test_repartition_is_a_version_and_older_ones_stay_as_they_were(house: Lakehouse) -> None:
    dataset = house.create_dataset("d", SCHEMA, partition_by=["day"])
    dataset.append({"id": [1, 2, 1], "day": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]})
    before = rows(dataset)
    done = dataset.repartition(["id"])
    assert (done.version, done.files_removed, done.files_added) == (2, 3, 2)
    assert (dataset.partition_by, rows(dataset)) == (("id",), before)
    assert {f.partition for f in dataset.files()} == {(("id", "1"),), (("id", "2"),)}
    assert len(dataset.files(1)) == 3
    dataset.append({"id": [5], "day": ["a"], "price": [5.0]})
    assert dataset.restore(1) == 4
    assert (dataset.partition_by, rows(dataset)) == (("day",), before)
    assert dataset.repartition([]).version == 5
    assert (len(dataset.files()), rows(dataset)) == (1, before)
    with pytest.raises(ValueError, match="Unknown column 'x'"):
        dataset.repartition(["x"])
    assert house.fsck().problems == ()


def test_optimize_clusters_as_a_version(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", {"a": "int64", "b": "int64"})
    for start in range(0, 400, 100):
        values = list(range(start, start + 100))
        dataset.append({"a": [v * 7 % 400 for v in values], "b": values})
    dry = dataset.optimize(["a"], target_rows_per_file=100, dry_run=True)
    assert (dry.version, dry.to_dict()["zorder_columns"]) == (None, ["a"])
    done = dataset.optimize(["a"], target_rows_per_file=100)
    assert done.version == 5
    assert sorted(dataset.read(["b"]).column("b").to_pylist()) == list(range(400))
    fragments = dataset.to_arrow_dataset(where="a = 7").get_fragments()
    assert len(list(fragments)) == 1
    assert dataset.optimize(["a"], target_rows_per_file=100).version is None
    assert dataset.history()[0].data_change is False
