"""Files that Spark writes (parquet-mr), stitched, and stitched files that Spark reads."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_tests.datasets import Lake, parquet_bytes
from maintenance_tests.engines.test_stitch import OBSTACLES, with_footer
from maintenance_tests.stitching import (
    assert_found,
    chunk_facts,
    column_bytes,
    parquet_table,
    stitched,
    with_duckdb,
    with_polars,
    with_pyarrow,
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("servers")]

ROWS = 3000
OPTIONS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "zstd, v2 pages, no sums": {
        "compression": "zstd",
        "parquet.writer.version": "v2",
        "parquet.page.write-checksum.enabled": "false",
    },
    "small pages and bloom filters": {
        "parquet.page.row.count.limit": "200",
        "parquet.bloom.filter.enabled#id": "true",
        "parquet.bloom.filter.expected.ndv#id": "3000",
    },
    "small row groups, no dictionary": {
        "compression": "gzip",
        "parquet.block.size": "2000",
        "parquet.block.size.row.check.min": "100",
        "parquet.enable.dictionary": "false",
    },
    "uncompressed": {"compression": "none"},
}


def written_by_spark(spark: Any, lake: Lake, **options: str) -> list[bytes]:
    """Four files by parquet-mr."""
    frame = spark.createDataFrame(parquet_table(ROWS)).repartitionByRange(4, "id")
    target = Path(lake.url).with_name("by-spark")
    frame.write.options(**options).parquet(str(target))
    return [path.read_bytes() for path in sorted(target.glob("*.parquet"))]


def rows_of(frame: Any) -> list[str]:
    """Rows as text, in the order of their key."""
    return [json.dumps(row.asDict(True), default=str) for row in frame.orderBy("id").collect()]


@pytest.mark.parametrize("kind", OPTIONS)
def test_files_of_parquet_mr_are_copied(spark: Any, local: Lake, kind: str) -> None:
    contents = written_by_spark(spark, local, **OPTIONS[kind])
    name = stitched(local, *contents)
    output = local.get(name)
    assert column_bytes(output) == [group for c in contents for group in column_bytes(c)]
    facts = [group for c in contents for group in chunk_facts(c)]
    assert facts == chunk_facts(output)
    if "bloom" in kind:
        assert facts[0][0]["bloom"]
    assert local.open(name).metadata.created_by.startswith("parquet-mr version")
    expected = spark.createDataFrame(parquet_table(ROWS))
    frame = spark.read.parquet(local.path(name))
    assert rows_of(frame) == rows_of(expected)
    for value in (0, 1234, ROWS - 1, ROWS):
        assert frame.where(f"id = {value}").count() == (value < ROWS)
        assert_found(local.path(name), "id", value, int(value < ROWS))


@pytest.mark.parametrize("writer", [with_pyarrow, with_duckdb, with_polars])
def test_spark_reads_stitched_files_of_every_writer(spark: Any, local: Lake, writer: Any) -> None:
    tables = [parquet_table(ROWS, start) for start in (0, ROWS)]
    options: dict[str, Any] = {}
    if writer is with_pyarrow:
        options = {"write_page_index": True, "max_rows_per_page": 100, "row_group_size": 700}
    name = stitched(local, *(writer(table, **options) for table in tables))
    frame = spark.read.parquet(local.path(name))
    assert rows_of(frame) == rows_of(spark.createDataFrame(pa.concat_tables(tables)))
    # Page-index filters find rows by the positions that were moved.
    for value in (3, ROWS, 2 * ROWS - 1):
        assert [row.id for row in frame.where(f"id = {value}").collect()] == [value]


def test_spark_reads_more_row_groups_than_ordinals(spark: Any, local: Lake) -> None:
    rows = 17_000
    contents = [
        parquet_bytes({"id": range(start, start + rows)}, row_group_size=1) for start in (0, rows)
    ]
    name = stitched(local, *contents)
    assert pq.read_metadata(local.path(name)).num_row_groups == 2 * rows > 32_767
    frame = spark.read.parquet(local.path(name))
    assert frame.selectExpr("sum(id)").collect()[0][0] == rows * (2 * rows - 1)
    assert frame.where("id = 33000").count() == 1


def test_files_of_spark_grow_by_files_of_spark(spark: Any, local: Lake) -> None:
    for content, name in zip(written_by_spark(spark, local), "abcd", strict=True):
        local.put(f"{name}.parquet", content)
    result = local.compact("spark", mode="stitch")
    assert (result.mode, result.written_by) == ("stitch", {"spark": 1})
    name = local.only_file()
    assert sorted(local.column("id")) == list(range(ROWS))
    row = local.open(name).schema_arrow.metadata[b"org.apache.spark.sql.parquet.row.metadata"]
    assert [field["name"] for field in json.loads(row)["fields"]][:2] == ["id", "text"]


def test_an_obstacle_that_an_executor_finds_is_told(spark: Any, local: Lake) -> None:
    table = pa.table({"id": pa.array(range(100_000), pa.int32())})
    local.write("a.parquet", table)
    local.put("b.parquet", with_footer_field(parquet_bytes(table)))
    result = local.compact("spark")
    assert (result.mode, result.stats.after_file_count) == ("encode", 1)
    assert any("a row group has field 11" in note for note in result.engine_notes)
    assert local.column("id") == [*range(100_000), *range(100_000)]


def with_footer_field(content: bytes) -> bytes:
    """The same file with a field in its row groups that nobody knows."""
    change, _ = OBSTACLES["a field of a row group"]
    return with_footer(content, change)
