"""What tests of stitching share: files of many writers, and all readers on one file."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_tests.datasets import Lake, parquet_bytes


def column_bytes(content: bytes) -> list[list[bytes]]:
    """The bytes of each column chunk, row group by row group."""
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [[_chunk_bytes(content, g.column(c)) for c in range(g.num_columns)] for g in groups]


def _chunk_bytes(content: bytes, chunk: Any) -> bytes:
    offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
    start = min(offset for offset in offsets if offset)
    return content[start : start + chunk.total_compressed_size]


def chunk_facts(content: bytes) -> list[list[dict[str, Any]]]:
    """All that the footer says of each column chunk but where it is."""
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [[_facts(group.column(i)) for i in range(group.num_columns)] for group in groups]


def _facts(chunk: Any) -> dict[str, Any]:
    statistics = chunk.statistics
    return {
        "path": chunk.path_in_schema,
        "codec": chunk.compression,
        "encodings": chunk.encodings,
        "values": chunk.num_values,
        "sizes": (chunk.total_compressed_size, chunk.total_uncompressed_size),
        "dictionary": chunk.has_dictionary_page,
        "indexes": (chunk.has_offset_index, chunk.has_column_index),
        "bloom": chunk.bloom_filter_length,
        "statistics": None
        if statistics is None
        else (
            statistics.null_count,
            statistics.distinct_count,
            (statistics.min_raw, statistics.max_raw) if statistics.has_min_max else None,
        ),
    }


def with_pyarrow(table: Any, **options: Any) -> bytes:
    """A file by Arrow C++."""
    return parquet_bytes(table, **options)


def with_duckdb(table: Any, **options: Any) -> bytes:
    """A file by DuckDB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        with duckdb.connect() as connection:
            connection.from_arrow(table).write_parquet(str(path), **options)
        return path.read_bytes()


def with_polars(table: Any, **options: Any) -> bytes:
    """A file by Polars."""
    sink = io.BytesIO()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(sink, **options)
    return sink.getvalue()


Writer = Callable[..., bytes]


def stitched(lake: Lake, *contents: bytes, mode: str = "stitch", **options: Any) -> str:
    """Put files into a lake and stitch them; the name of the only output."""
    for number, content in enumerate(contents):
        lake.put(f"part-{number:05}.parquet", content)
    result = lake.compact("pyarrow", mode=mode, **options)
    assert (result.mode, result.engine_notes) == ("stitch", ()), result.engine_notes
    return lake.only_file()


def assert_read_alike(lake: Lake, name: str, expected: Any, key: str = "id") -> None:
    """The rows of a local file by pyarrow, DuckDB and Polars, whole and by a key of each kind."""
    path = lake.path(name)
    found = lake.open(name).read()
    assert found.equals(expected.replace_schema_metadata(found.schema.metadata)), found.schema
    with duckdb.connect() as connection:
        expected_rows = connection.from_arrow(expected).order(key).fetchall()
        found_rows = connection.read_parquet(path, hive_partitioning=False).order(key).fetchall()
        assert found_rows == expected_rows
    frame = pl.read_parquet(path, hive_partitioning=False).sort(key)
    whole = pl.from_arrow(expected)
    assert isinstance(whole, pl.DataFrame)
    assert frame.equals(whole.sort(key), null_equal=True)
    keys = expected.column(key).to_pylist()
    for value in {keys[0], keys[-1], keys[len(keys) // 2], keys[len(keys) // 3]}:
        assert_found(path, key, value, keys.count(value))


def assert_found(path: str, key: str, value: Any, count: int) -> None:
    """A look-up of a value, which all readers answer by statistics, indexes and bloom filters."""
    assert pq.read_table(path, filters=[(key, "=", value)], partitioning=None).num_rows == count
    query = f"SELECT count(*) FROM read_parquet(?, hive_partitioning = false) WHERE {key} = ?"
    with duckdb.connect() as connection:
        assert connection.execute(query, [path, value]).fetchall() == [(count,)]
    scan = pl.scan_parquet(path, hive_partitioning=False).filter(pl.col(key) == value)
    assert scan.collect().height == count


def parquet_table(rows: int, start: int = 0) -> Any:
    """A table of many types with keys from `start`."""
    ids = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"text {n % 13}" if n % 7 else None for n in ids],
            "price": [n / 8 for n in ids],
            "flag": [n % 3 == 0 if n % 5 else None for n in ids],
            "list": [[n, n + 1][: n % 3] if n % 11 else None for n in ids],
            "record": [{"a": n, "b": f"b{n % 4}"} if n % 9 else None for n in ids],
            "at": pa.array([n * 1000 for n in ids], pa.timestamp("us")),
            "day": pa.array([n % 10_000 for n in ids], pa.date32()),
        }
    )
