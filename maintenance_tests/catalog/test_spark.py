"""DataFrames of Spark are written by the executors that hold the rows."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import Lakehouse, SchemaMismatchError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("servers")]


def on_disk(house: Lakehouse, name: str) -> list[str]:
    """All files of a dataset but its mark."""
    root = Path(house.dataset(name).path)
    found = [path for path in root.rglob("*") if path.is_file() and path.name != "dataset.json"]
    return sorted(str(path.relative_to(root).parent) for path in found)


def test_executors_write_the_rows_that_they_hold(
    small: Lakehouse, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = small.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
    frame = spark.range(0, 40, 1, 4).selectExpr(
        "id", "CASE WHEN id % 2 = 0 THEN 'a/b' END AS k", "id * 1.5D AS price"
    )
    with monkeypatch.context() as patch:
        for way in ("toArrow", "toPandas", "collect"):
            patch.setattr(type(frame), way, _no_rows_here(type(frame), way))
        done = dataset.append(frame, row_group_rows=3, author="ann")
    assert (done.version, done.rows, len(done.files)) == (1, 40, 8)
    assert {tuple(file.partition.items()) for file in done.files} == {
        (("k", "a%2Fb"),),
        (("k", "__HIVE_DEFAULT_PARTITION__"),),
    }
    assert {file.row_groups for file in done.files} == {2}
    table = dataset.read().sort_by("id")
    assert table.schema == pa.schema(
        [("id", pa.int64()), ("k", pa.string()), ("price", pa.float64())]
    )
    assert table.column("price").to_pylist() == [n * 1.5 for n in range(40)]
    assert dataset.read(where="k = 'a/b' AND id > 35").column("id").sort().to_pylist() == [36, 38]
    (first, *_) = dataset.files()
    written = pq.read_schema(Path(dataset.path) / first.path)
    assert written.field("id").metadata[b"PARQUET:field_id"] == b"1"
    assert len(on_disk(small, "d")) == 8
    assert small.fsck().problems == ()


def _no_rows_here(kind: Any, name: str) -> Any:
    """`collect` may bring reports of executors, never rows of the data."""
    original = getattr(kind, name)

    def limited(self: Any, *args: Any) -> Any:
        assert "path" in self.columns, f"{name} brought the rows to the driver"
        return original(self, *args)

    return limited


def test_a_value_that_does_not_fit_leaves_nothing_of_what_executors_wrote(
    small: Lakehouse, spark: Any
) -> None:
    dataset = small.create_dataset("d", {"id": "int64", "price": "double"})
    frame = spark.range(0, 8, 1, 4).selectExpr("id", "9007199254740993L - id % 2 AS price")
    with pytest.raises(SchemaMismatchError, match="'price'"):
        dataset.append(frame)
    assert (dataset.version, on_disk(small, "d")) == (0, [])
    assert small.fsck().problems == ()


def test_an_overwrite_from_spark_replaces_its_partitions_once(small: Lakehouse, spark: Any) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.int32())])
    dataset = small.create_dataset("d", schema, partition_by=["k"])
    moment = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    dataset.append({"at": pa.array([moment, moment], schema.field("at").type), "k": [1, 2]})
    frame = spark.sql("SELECT timestamp_micros(7) AS at, 2 AS k")
    first = dataset.overwrite(frame, dynamic=True, txn_id="load")
    again = dataset.overwrite(frame, dynamic=True, txn_id="load")
    assert (first.version, again.version, again.committed_before) == (2, 2, True)
    epoch = dt.datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=dt.UTC)
    assert dataset.read().sort_by("k").to_pylist() == [
        {"at": moment, "k": 1},
        {"at": epoch, "k": 2},
    ]
    dataset.append(frame.limit(0))
    assert dataset.read().num_rows == 2
    assert small.fsck().problems == ()
