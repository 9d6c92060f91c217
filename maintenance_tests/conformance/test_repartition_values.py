"""Partition values of any text: written by us, read alike by others."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from maintenance_assets import repartition
from maintenance_tests.datasets import Lake

TEXTS = [
    "plain",
    "BTC/USD",
    "a=b",
    "50%",
    "%2F",
    "with space",
    " leading",
    "trailing ",
    "dot.",
    ".hidden",
    "_under",
    "quote'\"",
    "äöü\U0001f600",
    "a\\b",
    "x:y?*#[z]{}^",
    "new\nline",
    "..",
    "None",
    "null",
    "01",
    "1.50",
    "true",
    "2025-11-04",
]
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture
def target(tmp_path: Path) -> Lake:
    """Where the rows go."""
    return Lake(str(tmp_path / "target"))


def write(lake: Lake, values: list[str | None]) -> None:
    """Each value once, with a number."""
    lake.write("a.parquet", {"v": pa.array(values), "n": list(range(len(values)))})


def read_by_arrow(lake: Lake, schema: pa.Schema) -> dict[int, Any]:
    partitioning = ds.HivePartitioning(schema)
    table = ds.dataset(lake.url, format="parquet", partitioning=partitioning).to_table()
    return dict(zip(table["n"].to_pylist(), table["v"].to_pylist(), strict=True))


def read_by_duckdb(lake: Lake) -> dict[int, Any]:
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT n, v FROM read_parquet('{lake.url}/**/*.parquet', hive_partitioning = true, "
            "hive_types_autocast = false)"
        ).fetchall()
    return dict(rows)


@pytest.mark.parametrize("keep", [True, False])
def test_arrow_and_duckdb_read_every_text_back(local: Lake, target: Lake, keep: bool) -> None:
    values = [*TEXTS, "", None]
    write(local, list(values))
    repartition(local.url, target.url, ["v"], keep_partition_columns=keep)
    expected = dict(enumerate(values))
    assert read_by_arrow(target, pa.schema([("v", pa.string())])) == expected
    assert read_by_duckdb(target) == expected


@pytest.mark.spark
@pytest.mark.xdist_group("servers")
def test_spark_reads_every_text_back(spark: Any, local: Lake, target: Lake) -> None:
    values = [*TEXTS, HIVE_NULL, None]
    write(local, list(values))
    repartition(local.url, target.url, ["v"], keep_partition_columns=False)
    reader = spark.read.schema("n bigint, v string").parquet(target.url)
    assert {row["n"]: row["v"] for row in reader.collect()} == dict(enumerate(values))


def test_a_note_tells_that_spark_refuses_the_empty_text(local: Lake, target: Lake) -> None:
    write(local, ["", "x"])
    result = repartition(local.url, target.url, ["v"])
    assert any("Spark" in note and "'v='" in note for note in result.notes)


def test_the_literal_of_null_stays_a_text_for_duckdb_and_for_us(
    local: Lake, target: Lake, tmp_path: Path
) -> None:
    write(local, [HIVE_NULL, None])
    repartition(local.url, target.url, ["v"], keep_partition_columns=False)
    assert read_by_duckdb(target) == {0: HIVE_NULL, 1: None}
    again = Lake(str(tmp_path / "again"))
    repartition(target.url, again.url, ["n"])
    assert (again.column("v", "n=0"), again.column("v", "n=1")) == ([HIVE_NULL], [None])


@pytest.mark.parametrize("keep", [True, False])
def test_a_second_repartition_knows_every_text(
    local: Lake, target: Lake, tmp_path: Path, keep: bool
) -> None:
    values = [*TEXTS, "", HIVE_NULL, None]
    write(local, list(values))
    repartition(local.url, target.url, ["v"], keep_partition_columns=keep)
    flat = Lake(str(tmp_path / "flat"))
    repartition(target.url, flat.url, [])
    found = dict(zip(flat.column("n"), flat.column("v"), strict=True))
    assert found == dict(enumerate(values))


@pytest.mark.parametrize("odd", ["a/b", "k=1", ".k", "k'", "ü", "a b"])
def test_names_of_columns_are_escaped_as_well(local: Lake, target: Lake, odd: str) -> None:
    local.write("a.parquet", {odd: ["x", "y"], "n": [0, 1]})
    repartition(local.url, target.url, [odd], keep_partition_columns=False)
    flat = target.below("../flat")
    repartition(target.url, flat.url, [])
    assert dict(zip(flat.column("n"), flat.column(odd), strict=True)) == {0: "x", 1: "y"}


def test_values_of_other_types_are_read_back_in_their_type(local: Lake, target: Lake) -> None:
    table = pa.table(
        {
            "i": pa.array([-5, 7, None], pa.int32()),
            "f": pa.array([0.1, 1e300, None]),
            "b": pa.array([True, False, None]),
            "d": pa.array([0, 20_000, None], pa.int32()).cast(pa.date32()),
            "t": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us")),
            "z": pa.array([0, 1_700_000_000_123, None], pa.timestamp("ms", "UTC")),
            "n": [0, 1, 2],
        }
    )
    local.write("a.parquet", table)
    names = [name for name in table.column_names if name != "n"]
    repartition(local.url, target.url, names, keep_partition_columns=False)
    schema = pa.schema([table.schema.field(name) for name in names])
    partitioning = ds.HivePartitioning(schema)
    found = ds.dataset(target.url, format="parquet", partitioning=partitioning).to_table()
    assert found.sort_by("n").select(table.column_names).equals(table)


def test_duckdb_reads_typed_values_as_they_are(local: Lake, target: Lake) -> None:
    table = pa.table(
        {
            "d": pa.array([0, 20_000], pa.int32()).cast(pa.date32()),
            "t": pa.array([0, 1_700_000_000_123_456], pa.timestamp("us")),
            "f": pa.array([float("inf"), -0.25]),
            "n": [0, 1],
        }
    )
    local.write("a.parquet", table)
    repartition(local.url, target.url, ["d", "t", "f"], keep_partition_columns=False)
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT d, t, f, n FROM read_parquet('{target.url}/**/*.parquet', "
            "hive_types = {'d': DATE, 't': TIMESTAMP, 'f': DOUBLE}) ORDER BY n"
        ).fetchall()
    assert found == [tuple(row.values()) for row in table.to_pylist()]
