"""Schemas that say the same in other words, and those that only seem to."""

from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets.engines.thrift import (
    I32,
    LIST,
    Reader,
    int_bytes,
    list_bytes,
    struct_bytes,
    take_list,
    take_struct,
)
from maintenance_tests.datasets import Lake, parquet_bytes
from maintenance_tests.engines.test_stitch import with_footer

ROWS = 100_000
_CONVERTED, _LOGICAL = 6, 10
IN_UTC = pa.table(
    {"id": range(ROWS), "at": pa.array(range(ROWS), pa.timestamp("us", "UTC"))},
)


def noted(content: bytes, column: str, *, converted: int | None, logical: bool) -> bytes:
    """The same file whose schema describes a column in one notation alone."""

    def change(footer: Any) -> None:
        elements, _ = take_list(footer.fields[2][1], 0, take_struct)
        for element in elements:
            name = Reader(b"\x18" + element[4][1] + b"\0").struct()[1]
            if name == column.encode():
                element.pop(_CONVERTED, None)
                if converted is not None:
                    element[_CONVERTED] = I32, int_bytes(converted)
                if not logical:
                    element.pop(_LOGICAL, None)
        footer.fields[2] = LIST, list_bytes([struct_bytes(element) for element in elements])

    return with_footer(content, change)


def in_old_notation(table: Any = IN_UTC) -> bytes:
    """Timestamps that are said to be such only as files of 2015 say it."""
    return noted(parquet_bytes(table, store_schema=False), "at", converted=10, logical=False)


def duckdb_type(path: str, column: str) -> str:
    query = f'SELECT typeof("{column}") FROM read_parquet(?, hive_partitioning = false) LIMIT 1'
    with duckdb.connect() as connection:
        return str(connection.execute(query, [path]).fetchall()[0][0])


def test_times_in_the_old_notation_stay_what_each_reader_takes_them_for(local: Lake) -> None:
    for part in range(2):
        local.put(f"{part}.parquet", in_old_notation())
    result = local.compact("pyarrow")
    assert (result.mode, result.notes, result.engine_notes) == ("stitch", (), ())
    path = local.path(local.only_file())
    assert duckdb_type(path, "at") == "TIMESTAMP"
    assert pl.read_parquet_schema(path)["at"] == pl.Datetime("us")
    assert pq.read_schema(path).field("at").type == pa.timestamp("us", "UTC")


def test_small_row_groups_join_those_in_the_old_notation(local: Lake) -> None:
    for part, rows in enumerate((ROWS, 10, 10)):
        local.put(f"{part}.parquet", in_old_notation(IN_UTC.slice(0, rows)))
    assert local.compact("pyarrow").mode == "hybrid"
    assert duckdb_type(local.path(local.only_file()), "at") == "TIMESTAMP"
    assert local.column("id") == [*range(ROWS), *range(10), *range(10)]


@pytest.mark.parametrize("first", ["old", "both"])
def test_times_in_utc_never_lose_it_beside_the_old_notation(local: Lake, first: str) -> None:
    contents = [in_old_notation(), parquet_bytes(IN_UTC, store_schema=False)]
    for part, content in enumerate(contents if first == "old" else reversed(contents)):
        local.put(f"{part}.parquet", content)
    result = local.compact("pyarrow")
    assert result.mode == "encode"
    assert "describe their columns differently" in str(result.engine_notes)
    assert "column 'at': timestamps in Parquet's old notation alone" in str(result.notes)
    path = local.path(local.only_file())
    assert duckdb_type(path, "at") == "TIMESTAMP WITH TIME ZONE"
    assert pl.read_parquet_schema(path)["at"] == pl.Datetime("us", "UTC")


def test_times_in_the_old_notation_that_are_encoded_are_told(local: Lake) -> None:
    for part in range(2):
        local.put(f"{part}.parquet", in_old_notation(IN_UTC.slice(part * 5, 5)))
    result = local.compact("pyarrow")
    assert result.mode == "encode"
    assert "column 'at': timestamps in Parquet's old notation alone" in str(result.notes)
    assert local.column("id") == list(range(10))


@pytest.mark.parametrize("first", ["new", "both"])
def test_dates_never_become_integers_beside_the_new_notation(local: Lake, first: str) -> None:
    table = pa.table({"id": range(ROWS), "day": pa.array([7] * ROWS, pa.date32())})
    both = parquet_bytes(table, store_schema=False)
    contents = [noted(both, "day", converted=None, logical=True), both]
    for part, content in enumerate(contents if first == "new" else reversed(contents)):
        local.put(f"{part}.parquet", content)
    result = local.compact("pyarrow")
    assert "describe their columns differently" in str(result.engine_notes)
    assert duckdb_type(local.path(local.only_file()), "day") == "DATE"


def test_text_in_the_old_notation_is_copied_beside_both(local: Lake) -> None:
    table = pa.table({"id": range(ROWS), "text": ["a", "b"] * (ROWS // 2)})
    both = parquet_bytes(table, store_schema=False)
    local.put("a.parquet", noted(both, "text", converted=0, logical=False))
    local.put("b.parquet", both)
    result = local.compact("pyarrow")
    assert (result.mode, result.engine_notes) == ("stitch", ())
    assert local.column("text") == ["a", "b"] * ROWS
