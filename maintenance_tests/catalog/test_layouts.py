"""Directories of a dataset: laid out anew while others write, spelled oddly, told by paths only."""

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import Lakehouse, SchemaMismatchError
from maintenance_assets.api.lakehouse import LakeDataset


def rows(dataset: LakeDataset) -> list[tuple[Any, ...]]:
    """All rows, in order."""
    return sorted((tuple(row.values()) for row in dataset.read().to_pylist()), key=repr)


def adopted(house: Lakehouse, root: Path, schema: pa.Schema | None, **files: int) -> LakeDataset:
    """A registered directory with one id in each of these directories."""
    for folder, number in files.items():
        (root / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), root / folder / "x.parquet")
    return house.register("adopted", root, schema=schema)


def while_read(work: Any, **columns: Any) -> pa.RecordBatchReader:
    """A stream of one batch; something happens before it comes."""
    batch = pa.record_batch(columns)

    def batches() -> Iterator[pa.RecordBatch]:
        work()
        yield batch

    return pa.RecordBatchReader.from_batches(batch.schema, batches())


def test_rows_that_are_appended_during_a_repartition_follow_it(house: Lakehouse) -> None:
    schema = {"id": "int64", "day": "string"}
    dataset = house.create_dataset("d", schema, partition_by=["day"])
    dataset.append({"id": [1, 2], "day": ["a", "b"]})
    dataset.append(while_read(lambda: dataset.repartition(["id"]), id=[3], day=["a"]))
    assert {f.partition for f in dataset.files()} == {
        (("id", "1"),),
        (("id", "2"),),
        (("id", "3"),),
    }
    dataset.overwrite({"id": [3], "day": ["new"]}, dynamic=True)
    assert rows(dataset) == [(1, "a"), (2, "b"), (3, "new")]
    assert house.fsck().problems == ()


def test_a_restored_layout_takes_the_rows_that_come_meanwhile(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
    dataset.append({"id": [1], "k": ["a"]})
    dataset.repartition([])
    dataset.append(while_read(lambda: dataset.restore(1), id=[2], k=["b"]))
    assert {f.partition for f in dataset.files()} == {(("k", "a"),), (("k", "b"),)}
    assert rows(dataset) == [(1, "a"), (2, "b")]


def test_an_overwrite_replaces_partitions_however_they_are_spelled(
    small: Lakehouse, tmp_path: Path
) -> None:
    dataset = adopted(small, tmp_path / "text", None, **{"k=a {": 1, "k=b": 2})
    dataset.overwrite({"id": [9], "k": ["a {"]}, dynamic=True)
    assert rows(dataset) == [(2, "b"), (9, "a {")]
    small.unregister("adopted")
    month = pa.schema([("id", pa.int64()), ("m", pa.int32())])
    dataset = adopted(small, tmp_path / "numbers", month, **{"m=01": 1, "m=02": 2})
    dataset.overwrite({"id": [9], "m": [1]}, dynamic=True)
    assert rows(dataset) == [(2, 2), (9, 1)]
    dataset.overwrite({"id": [8], "m": [2]}, partition_filter="m=2")
    assert rows(dataset) == [(8, 2), (9, 1)]


def test_a_dynamic_overwrite_without_partitions_replaces_everything(
    small: Lakehouse, tmp_path: Path
) -> None:
    dataset = adopted(small, tmp_path / "deep", None, **{"k=a": 1, "k=b/j=c": 2})
    assert dataset.partition_by == ()
    dataset.overwrite({"id": [9]}, dynamic=True)
    assert rows(dataset) == [(9, None, None)]


def test_columns_that_only_paths_hold_keep_their_name(small: Lakehouse, tmp_path: Path) -> None:
    dataset = adopted(small, tmp_path / "deep", None, **{"k=a": 1, "k=b/j=c": 2})
    before = [(1, "a", None), (2, "b", "c")]
    assert rows(dataset) == before
    changes: list[Callable[[], int]] = [
        lambda: dataset.rename_column("k", "letter"),
        lambda: dataset.drop_column("j"),
        lambda: dataset.widen_column("k", pa.large_string()),
    ]
    for change in changes:
        with pytest.raises(SchemaMismatchError, match="directories are named after it"):
            change()
    assert rows(dataset) == before
    dataset.repartition(["id"])
    dataset.rename_column("k", "letter")
    dataset.drop_column("j")
    dataset.add_column("j", pa.string())
    assert rows(dataset) == [(1, "a", None), (2, "b", None)]


def test_keys_of_paths_do_not_become_values_of_new_columns(
    small: Lakehouse, tmp_path: Path
) -> None:
    only = pa.schema([("id", pa.int64())])
    dataset = adopted(small, tmp_path / "keys", only, **{"k=a": 1})
    changes: list[Callable[[], Any]] = [
        lambda: dataset.add_column("k", pa.string()),
        lambda: dataset.rename_column("id", "k"),
        lambda: dataset.append({"id": [2], "k": ["z"]}),
    ]
    for change in changes:
        with pytest.raises(SchemaMismatchError, match="'k' is a key in the paths of files"):
            change()
    assert rows(dataset) == [(1,)]


def test_values_that_only_paths_hold_keep_their_type(small: Lakehouse, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("m", pa.int32()), ("j", pa.string())])
    dataset = adopted(small, tmp_path / "deep", schema, **{"m=01": 1, "m=02/j=c": 2})
    before = [(1, 1, None), (2, 2, "c")]
    assert rows(dataset) == before
    with pytest.raises(SchemaMismatchError, match="'m' is a key in the paths of files"):
        dataset.append({"id": [3], "m": ["x"]}, on_mismatch="string")
    assert rows(dataset) == before


def test_times_of_day_can_be_partitions(small: Lakehouse) -> None:
    types = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    for number, type_ in enumerate(types):
        schema = pa.schema([("id", pa.int64()), ("t", type_)])
        dataset = small.create_dataset(f"t{number}", schema, partition_by=["t"])
        dataset.append({"id": [1, 2], "t": pa.array([dt.time(10, 30), None], type_)})
        dataset.overwrite({"id": [3], "t": pa.array([dt.time(10, 30)], type_)}, dynamic=True)
        assert rows(dataset) == [(2, None), (3, dt.time(10, 30))]
