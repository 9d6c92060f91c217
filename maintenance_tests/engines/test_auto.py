"""engine="auto": the plan and the machine decide, and the result says why."""

from pathlib import Path

import pyarrow as pa
import pytest

from maintenance_assets import compact
from maintenance_assets.engines.duckdb_engine import DuckDBEngine
from maintenance_tests.datasets import Lake, one_row_files


def test_small_work_is_done_by_pyarrow(local: Lake) -> None:
    one_row_files(local, 3)
    result = local.compact("auto")
    assert result.engine == "pyarrow"
    assert "fit the memory budget of 512 MiB" in result.engine_reason
    assert result.stats.after_file_count == 1


def test_nothing_to_do_needs_no_engine(local: Lake) -> None:
    one_row_files(local, 1)
    assert local.compact("auto").stats.compacted_file_count == 0


def big(lake: Lake, table: pa.Table) -> None:
    for part in range(2):
        lake.write(f"{part}.parquet", table)


def test_more_than_the_budget_goes_to_duckdb_where_it_keeps_all(local: Lake) -> None:
    big(local, pa.table({"id": range(100_000)}))
    for dry_run in (True, False):
        result = local.compact("auto", mode="encode", memory_budget_mb=1, dry_run=dry_run)
        assert result.engine == "duckdb"
        assert "DuckDB keeps every column" in result.engine_reason
        assert result.written_by == {"duckdb": 1}


def test_more_than_the_budget_stays_with_pyarrow_where_only_it_keeps_all(local: Lake) -> None:
    big(local, pa.table({"id": pa.array([1.5] * 1_000_000, pa.float16())}))
    result = local.compact("auto", mode="encode", memory_budget_mb=1)
    assert result.engine == "pyarrow"
    assert "only PyArrow keeps" in result.engine_reason


def test_what_is_copied_needs_no_other_engine(local: Lake) -> None:
    big(local, pa.table({"id": range(100_000)}))
    result = local.compact("auto", memory_budget_mb=1)
    assert (result.engine, result.mode) == ("pyarrow", "stitch")
    assert result.engine_reason == "all row groups of 1 group(s) are copied"


def test_engine_may_be_given_as_an_object(local: Lake) -> None:
    one_row_files(local, 3)
    result = compact(local.url, engine=DuckDBEngine())
    assert (result.engine, result.engine_reason) == ("duckdb", "asked for")


def test_unknown_engine_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"Unknown engine 'polars'\. Known engines: pyarrow, duckdb, spark, auto"
    ):
        compact(tmp_path / "missing", engine="polars")
