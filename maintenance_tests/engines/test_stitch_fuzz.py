"""Any schema by any writer with any options: stitched, it is what the sources were together."""

import io
import tempfile
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_tests.datasets import Lake, assert_same_values
from maintenance_tests.stitching import (
    assert_found,
    column_bytes,
    stitched,
    with_duckdb,
    with_polars,
    with_pyarrow,
)

FLAT = (
    pa.int8(),
    pa.uint32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ms"),
    pa.decimal128(20, 3),
)
TYPES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(FLAT),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([(f"f{i}", type_) for i, type_ in enumerate(types)])
        ),
    ),
    max_leaves=4,
)
PYARROW = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["snappy", "zstd", "gzip", "brotli", "lz4", "none"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.booleans(),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "row_group_size": st.integers(1, 60),
        "data_page_size": st.integers(1, 400),
        "write_batch_size": st.integers(1, 20),
        "store_schema": st.booleans(),
        "bloom_filter_options": st.just({"id": {"ndv": 50}}),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
    },
)
DUCKDB = st.fixed_dictionaries(
    {}, optional={"compression": st.sampled_from(["snappy", "zstd", "gzip", "uncompressed"])}
)
POLARS = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["snappy", "zstd", "gzip", "lz4", "uncompressed"]),
        "row_group_size": st.integers(1, 60),
        "data_page_size": st.integers(10, 400),
        "statistics": st.sampled_from([True, False, "full"]),
    },
)
WRITES = st.one_of(
    st.tuples(st.just(with_pyarrow), PYARROW),
    st.tuples(st.just(with_duckdb), DUCKDB),
    st.tuples(st.just(with_polars), POLARS),
)


def value(type_: Any, seed: int) -> Any:
    """A value of a type, null now and then."""
    if seed % 7 == 3:
        return None
    if pa.types.is_list(type_):
        return [value(type_.value_type, seed * 31 + n) for n in range(seed % 4)]
    if pa.types.is_struct(type_):
        return {field.name: value(field.type, seed * 17 + n) for n, field in enumerate(type_)}
    if pa.types.is_boolean(type_):
        return seed % 2 == 0
    if pa.types.is_string(type_):
        return "é" * (seed % 5) + str(seed % 20)
    if pa.types.is_binary(type_):
        return bytes([seed % 256]) * (seed % 4)
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return Decimal(seed % 1000) / 8 if pa.types.is_decimal(type_) else (seed % 1000) / 8
    if pa.types.is_temporal(type_):
        return datetime(2025, 1, 1) + timedelta(days=seed % 100, milliseconds=seed % 9)
    return seed % 100


def table(types: list[Any], rows: int, start: int) -> Any:
    columns = {
        f"c{n}": pa.array([value(type_, start + n + 13 * row) for row in range(rows)], type_)
        for n, type_ in enumerate(types)
    }
    return pa.table({"id": pa.array(range(start, start + rows), pa.int64()), **columns})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(TYPES, max_size=4),
    st.lists(st.integers(1, 150), min_size=2, max_size=4),
    WRITES,
    st.integers(0, 1000),
)
def test_stitched_files_are_their_sources(
    types: list[Any], sizes: list[int], write: tuple[Any, dict[str, Any]], start: int
) -> None:
    writer, options = write
    tables = [table(types, rows, start + 1000 * number) for number, rows in enumerate(sizes)]
    contents = [writer(part, **options) for part in tables]
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(str(Path(folder) / "lake"))
        name = stitched(lake, *contents)
        output = lake.get(name)
        assert column_bytes(output) == [group for c in contents for group in column_bytes(c)]
        sources = pa.concat_tables([pq.read_table(io.BytesIO(content)) for content in contents])
        assert_same_values(lake.open(name).read(), sources)
        assert_other_readers_agree(lake, name, contents, folder)
        assert_found(lake.path(name), "id", start, 1)
        assert_found(lake.path(name), "id", start + 999, 0)
        assert lake.compact("pyarrow").stats.compacted_file_count == 0


def assert_other_readers_agree(lake: Lake, name: str, contents: list[bytes], folder: str) -> None:
    """What each reader makes of the output is what it made of the sources."""
    paths = [Path(folder) / f"{number}.parquet" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    names = [str(path) for path in paths]
    with duckdb.connect() as connection:
        whole = connection.read_parquet(lake.path(name), hive_partitioning=False).fetchall()
        parts = connection.read_parquet(names, hive_partitioning=False).fetchall()
    assert sorted(map(repr, whole)) == sorted(map(repr, parts))
    frame = pl.read_parquet(lake.path(name), hive_partitioning=False)
    assert frame.equals(pl.concat([pl.read_parquet(each) for each in names]), null_equal=True)
