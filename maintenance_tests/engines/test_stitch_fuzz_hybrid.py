"""Files of several writers, whatever their row groups: copied, encoded and cut, no row is lost."""

import io
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.planning import row_groups
from maintenance_tests.datasets import Lake, assert_same_values
from maintenance_tests.engines.test_stitch_fuzz import TYPES, table
from maintenance_tests.stitching import assert_found, with_duckdb, with_pyarrow

HEALTHY = 40
"""In place of 100,000 rows, so that small files have row groups of both kinds."""
OPTIONS = st.fixed_dictionaries(
    {
        "store_schema": st.just(False),  # DuckDB stores none either
        "compression": st.sampled_from(["snappy", "snappy", "snappy", "zstd"]),
        "row_group_size": st.sampled_from([5, 30, 41, 60, 100]),
    },
    optional={
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.booleans(),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "data_page_size": st.sampled_from([50, 400]),
        "write_batch_size": st.sampled_from([3, 10]),
        "bloom_filter_options": st.just({"id": {"ndv": 50}}),
        "sorting_columns": st.just([pq.SortingColumn(0)]),
    },
)
WRITES = st.one_of(
    st.tuples(st.just(with_pyarrow), OPTIONS),
    st.tuples(st.just(with_pyarrow), OPTIONS),
    st.tuples(st.just(with_duckdb), st.just({"compression": "snappy"})),
)
SIZES = st.one_of(st.integers(1, 20), st.integers(20, 60), st.integers(60, 300))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(TYPES, max_size=3),
    st.lists(st.tuples(SIZES, WRITES), min_size=1, max_size=5),
    st.sampled_from([None, 50, 90, 200]),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_rows_are_the_same_however_they_are_written(
    types: list[Any],
    files: list[tuple[int, tuple[Any, dict[str, Any]]]],
    bound: int | None,
    workers: int,
    in_memory: bool,
) -> None:
    starts = [sum(rows for rows, _ in files[:at]) for at in range(len(files) + 1)]
    sources = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "HEALTHY_ROWS", HEALTHY)
        patch.setattr(row_groups, "HEALTHY_BYTES", 10**9)
        # In memory, all is read as from an object store.
        lake = Lake(f"memory://{folder}/lake" if in_memory else str(Path(folder) / "lake"))
        for number, (rows, (write, options)) in enumerate(files):
            content = write(table(types, rows, starts[number]), **options)
            sources.append(pq.read_table(io.BytesIO(content)))
            lake.put(f"part-{number}.parquet", content)
        lake.compact("pyarrow", target_rows_per_file=bound, max_workers=workers)
        outputs = [lake.open(name).read() for name in lake.files()]
        assert bound is None or max(output.num_rows for output in outputs) <= bound
        found = pa.concat_tables(outputs).sort_by("id")
        assert_same_values(found, pa.concat_tables(sources).sort_by("id"))
        for name in lake.files():
            look(Path(folder) / "copy.parquet", lake.get(name), starts[-1])
        again = lake.compact("pyarrow", target_rows_per_file=bound)
        assert again.stats.compacted_file_count == 0


def look(path: Path, content: bytes, beyond: int) -> None:
    """All readers find the rows of a file in their order, and each of some by its key."""
    path.write_bytes(content)
    parquet = pq.ParquetFile(path)
    ids = parquet.read(columns=["id"]).column("id").to_pylist()
    with duckdb.connect() as connection:
        query = "SELECT id FROM read_parquet(?, hive_partitioning = false)"
        assert [row[0] for row in connection.execute(query, [str(path)]).fetchall()] == ids
    assert pl.read_parquet(path, hive_partitioning=False)["id"].to_list() == ids
    for value in {ids[0], ids[-1], ids[len(ids) // 2], beyond}:
        assert_found(str(path), "id", value, ids.count(value))
    for group in range(parquet.num_row_groups):
        if parquet.metadata.row_group(group).sorting_columns:
            held = parquet.read_row_group(group).column("id").to_pylist()
            assert held == sorted(held)
