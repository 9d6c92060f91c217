"""Changes with Spark: executors look into files as well, and what they find comes back."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets import delete, sql, update, upsert
from maintenance_assets.engines import spark_scan
from maintenance_assets.engines.spark_engine import SparkEngine
from maintenance_assets.engines.spark_jobs import run_job as run_spark_job
from maintenance_assets.errors import RewriteError, UnsupportedDatasetError
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake

pytestmark = [pytest.mark.spark, ONE_WORKER]


@pytest.fixture
def engine(spark: Any) -> SparkEngine:
    """An engine that looks into any number of files on executors."""
    return SparkEngine(spark, scan_files=1)


@pytest.fixture
def lake(local: Lake) -> Lake:
    """Six files in two partitions, the day in the path alone."""
    for day in ("01", "02"):
        for part in range(3):
            ids = [10 * part + n for n in range(5)]
            local.write(f"day={day}/{part}.parquet", {"id": ids, "v": [float(i) for i in ids]})
    return local


def test_executors_look_for_rows(
    engine: SparkEngine, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def run_job(*arguments: Any) -> Any:
        looked.append(1)
        return run_spark_job(*arguments)

    monkeypatch.setattr(spark_scan, "run_job", run_job)
    result = delete(lake.url, "day = '02' AND id % 10 = 1 OR v = 4", engine=engine)
    assert looked == [1]
    assert (result.stats.rows_deleted, result.stats.files_written) == (5, 4)
    assert sorted(lake.column("id", "day=02")) == [0, 2, 3, 10, 12, 13, 14, 20, 22, 23, 24]


def test_a_dry_run_starts_no_job(
    engine: SparkEngine, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_scan, "run_job", None)
    assert delete(lake.url, "id = 1", engine=engine, dry_run=True).stats.rows_deleted == 2


def test_expressions_of_polars_and_moves_travel(engine: SparkEngine, lake: Lake) -> None:
    values = {"day": sql("CASE WHEN id < 3 THEN '03' ELSE '01' END"), "w": pl.col("v") * 2}
    predicted = update(lake.url, pl.col("id") < 10, values, engine="pyarrow", dry_run=True).stats
    result = update(lake.url, pl.col("id") < 10, values, engine=engine)
    assert result.stats.to_dict() == {**predicted.to_dict(), "dry_run": False}
    assert sorted(lake.column("id", "day=03")) == [0, 0, 1, 1, 2, 2]
    assert sorted(lake.column("w", "day=03")) == [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]
    assert len(lake.column("id", "day=02")) == 10


def test_keys_travel(engine: SparkEngine, lake: Lake) -> None:
    new = pa.table({"id": [3, 23, 99], "day": ["01", "02", "03"], "v": [np.nan, -1.0, 1.0]})
    result = upsert(lake.url, new, ["id", "day"], engine=engine)
    assert (result.stats.rows_updated, result.stats.rows_inserted) == (2, 1)
    assert lake.column("id", "day=03") == [99]
    assert sorted(lake.column("v", "day=02"))[:2] == [-1.0, 0.0]


def test_many_keys_are_looked_for_on_the_driver(
    engine: SparkEngine, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_scan, "MOST_KEY_BYTES", 8)
    monkeypatch.setattr(spark_scan, "run_job", None)
    new = {"id": [3, 4], "day": ["01", "01"], "v": [5.0, 6.0]}
    assert upsert(lake.url, new, ["id", "day"], engine=engine).stats.rows_updated == 2


def test_what_goes_wrong_on_executors_is_told_in_its_own_words(
    engine: SparkEngine, lake: Lake
) -> None:
    before = lake.tree()
    where = "CAST(CASE id WHEN 3 THEN 'x' ELSE '1' END AS INTEGER) = 1"
    with pytest.raises((ValueError, RewriteError), match="'x'"):
        delete(lake.url, where, engine=engine)
    lake.write("day=03/1.parquet", {"id": [1, 2], "v": [0.0, 0.0], "day": ["03", "04"]})
    with pytest.raises(UnsupportedDatasetError, match=r"'day' of .* holds '04'"):
        delete(lake.url, "day >= '03'", engine=engine)
    assert {name: digest for name, digest in lake.tree().items() if name in before} == before
